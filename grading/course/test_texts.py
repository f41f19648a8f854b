"""What is found in the texts: python3 -m unittest discover grading/course."""

import unittest

import texts

TESTS = {"AnyModel.trains", "AnyModel.loads", "Launcher.ends"}


def problems(*rows, after=""):
    page = "\n".join(["| Model | | Test |", "|---|---|---|", *rows, "", after])
    return list(texts.problems_of_rows(page, TESTS))


class Rows(unittest.TestCase):
    def test_a_row_names_tests_that_exist(self):
        self.assertEqual(problems("| one | right: `a.b` | `AnyModel.trains`, `.loads` |",
                                  "| two | right | the same |",
                                  "| three | right | `Launcher.*` |"), [])

    def test_a_test_that_is_not_there_is_named(self):
        self.assertEqual(problems("| one | right | `AnyModel.trains`, `.ends` |",
                                  "| two | right | `Nobody.*`, `Launcher.ends` |"),
                         ["there is no test AnyModel.ends", "there is no test Nobody.*"])

    def test_a_row_without_a_test_is_named(self):
        row = "| one | right |"
        self.assertEqual(problems(row), [f"the row names no test: {row}"])
        self.assertEqual(problems("| one | right | the same |"), ["the row names no test: | one | right | the same |"])

    def test_text_beside_the_tables_may_name_tests_and_code(self):
        self.assertEqual(problems("| one | right | `AnyModel.trains` |",
                                  after="`model.parameters()` and `.wrap` (`AnyModel.loads`, `AnyModel.is_gone`)"),
                         ["there is no test AnyModel.is_gone"])
