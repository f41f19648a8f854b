"""What is found in the texts: python3 -m unittest discover grading/course."""

import unittest

import texts

TESTS = {"AnyModel.trains", "AnyModel.loads", "Launcher.ends"}


def problems(*rows, after=""):
    page = "\n".join(["| Model | | Test |", "|---|---|---|", *rows, "", after])
    return list(texts.problems_of_rows(page, TESTS))


class Rows(unittest.TestCase):
    def test_a_row_names_tests_that_exist(self):
        for rows, wrong in (
                (["| one | right: `a.b` | `AnyModel.trains`, `.loads` |", "| two | right | the same |"], []),
                (["| one | right | `Launcher.*` |"], []),
                (["| one | right | `AnyModel.trains`, `.ends` |", "| two | right | `Nobody.*`, `Launcher.ends` |"],
                 ["there is no test AnyModel.ends", "there is no test Nobody.*"]),
                (["| one | right |"], ["the row names no test: | one | right |"]),
                (["| one | right | the same |"], ["the row names no test: | one | right | the same |"])):
            self.assertEqual(problems(*rows), wrong)
        self.assertEqual(problems("| one | right | `AnyModel.trains` |",  # text beside the tables
                                  after="`model.parameters()` and `.wrap` (`AnyModel.loads`, `AnyModel.is_gone`)"),
                         ["there is no test AnyModel.is_gone"])


class Paths(unittest.TestCase):
    def test_a_page_that_is_not_there_is_found_with_a_section_too(self):
        text = "`docs/lost.html#limit=1`, `docs/lost.html`, `docs/step.html#limit=1`, `tasks/GLOSSARY.md#words`\n"
        self.assertEqual(list(texts.problems_of_text(text, TESTS, set(), set())), ["there is no docs/lost.html"] * 2)
