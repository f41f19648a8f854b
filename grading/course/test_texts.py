"""What is found in the texts: python3 -m unittest discover grading/course."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import equations  # noqa: E402
import texts  # noqa: E402

TESTS = {"AnyModel.trains", "AnyModel.loads", "Launcher.ends"}


def problems(*rows, after=""):
    page = "\n".join(["| Model | | Test |", "|---|---|---|", *rows, "", after])
    return list(texts.problems_of_rows(page, TESTS))


class Rows(unittest.TestCase):
    def test_a_row_names_tests_that_exist(self):
        self.assertEqual(problems("| one | right: `a.b` | `AnyModel.trains`, `.loads` |",
                                  "| two | right | the same |",
                                  "| three | right | `Launcher.*` |",
                                  "| four | right | `test_texts`: `a_row_names_tests_that_exist` |"), [])

    def test_a_test_that_is_not_there_is_named(self):
        self.assertEqual(problems("| one | right | `AnyModel.trains`, `.ends` |",
                                  "| two | right | `Nobody.*`, `Launcher.ends` |",
                                  "| three | right | `test_texts`: `nothing` |"),
                         [f"there is no test {name}" for name in ("AnyModel.ends", "Nobody.*", "test_texts.nothing")])

    def test_a_row_without_a_test_is_named(self):
        row = "| one | right |"
        self.assertEqual(problems(row), [f"the row names no test: {row}"])
        self.assertEqual(problems("| one | right | the same |"), ["the row names no test: | one | right | the same |"])

    def test_text_beside_the_tables_may_name_tests_and_code(self):
        self.assertEqual(problems("| one | right | `AnyModel.trains` |",
                                  after="`model.parameters()` and `.wrap` (`AnyModel.loads`, `AnyModel.is_gone`)"),
                         ["there is no test AnyModel.is_gone"])


class Equations(unittest.TestCase):
    def test_a_wrong_one_is_found(self):
        for text in ("it is 3 x 4 = 13 bytes", "3/4 x 4 x (96 - 32) = 193;", "a (4 + 2) / 4 = 1.6.",
                     "624 = 4 x 155 is", "8 x 4 x 80,411,200 = 2.9 GB"):
            self.assertEqual(len(list(equations.wrong_equations(text))), 1, text)

    def test_a_right_one_is_not(self):
        for text in ("it is 3 x 4 = 12 bytes", "W = 2, 3", "R + 2U = 2,049,024 + 2 x 4 = 2,049,032.",
                     "2.34 + 0.33 + 0.25 = 2.91 GB", "120 / 84 = 1.43."):
            self.assertEqual(list(equations.wrong_equations(text)), [], text)


if __name__ == "__main__":
    unittest.main()
