"""Tests which differences between the texts of the course and the repository texts.py reports:
python3 -m unittest discover grading/course."""

import re
import sys
import unittest

import texts

sys.path.insert(0, str(texts.ROOT / "grading"))
from grader import course  # noqa: E402

TESTS = {"AnyModel.trains", "AnyModel.loads", "Launcher.ends"}


def problems(*rows, after=""):
    page = "\n".join(["| Model | | Test |", "|---|---|---|", *rows, "", after])
    return list(texts.problems_of_rows(page, TESTS))


class Rows(unittest.TestCase):
    def test_a_row_of_docs_what_works_md_that_names_no_test_or_a_missing_test_is_reported(self):
        for rows, wrong in (
            (
                [
                    "| one | right: `a.b` | `AnyModel.trains`, `.loads` |",
                    "| two | right | the same |",
                ],
                [],
            ),
            (["| one | right | `Launcher.*` |"], []),
            (
                [
                    "| one | right | `AnyModel.trains`, `.ends` |",
                    "| two | right | `Nobody.*`, `Launcher.ends` |",
                ],
                ["there is no test AnyModel.ends", "there is no test Nobody.*"],
            ),
            (["| one | right |"], ["the row names no test: | one | right |"]),
            (["| one | right | the same |"], ["the row names no test: | one | right | the same |"]),
        ):
            self.assertEqual(problems(*rows), wrong)
        self.assertEqual(
            problems(
                "| one | right | `AnyModel.trains` |",  # text beside the tables
                after="`model.parameters()` and `.wrap` (`AnyModel.loads`, `AnyModel.is_gone`)",
            ),
            ["there is no test AnyModel.is_gone"],
        )


class Paths(unittest.TestCase):
    def test_a_missing_page_is_reported_also_if_the_text_names_a_section_of_it(self):
        text = (
            "`docs/lost.html#limit=1`, `docs/lost.html`, `docs/step.html#limit=1`, "
            "`tasks/GLOSSARY.md#words`\n"
        )
        self.assertEqual(
            list(texts.problems_of_text(text, TESTS, set(), set())),
            ["there is no docs/lost.html"] * 2,
        )


class Headers(unittest.TestCase):
    def problems(self, text, is_task=True):
        return list(
            texts.problems_of_headers(
                text, is_task, "| `memory/live_bytes.h` | `optim/exact_sum.h` |"
            )
        )

    def test_a_text_that_says_that_a_header_has_a_name_is_reported_if_the_header_lacks_it(self):
        for text in (
            "`MemoryScope` (`common/memory/live_bytes.h`)",
            "`MemoryScope` of `memory/live_bytes.h`",
            "`live_bytes::now` and\n`MemoryScope` of `memory/live_bytes.h`",
            "`memory/live_bytes.h` has `live_bytes::now` and `MemoryScope`",
        ):
            self.assertEqual(
                self.problems(text, False),
                [f"{re.search('[a-z/_]+[.]h', text)[0]} has no MemoryScope"],
                text,
            )
        self.assertEqual(
            self.problems("`sum_of_squares()` and `value_of_sum` of `common/optim/exact_sum.h`"), []
        )

    def test_a_page_of_tasks_that_names_a_header_missing_in_common_readme_md_is_reported(self):
        text = "`common/comm/call.h`, `common/optim/exact_sum.h`, `trainer/prediction/step_time.h`"
        self.assertEqual(self.problems(text), ["common/README.md does not list comm/call.h"])
        self.assertEqual(self.problems(text, False), [])


class Measurements(unittest.TestCase):
    def test_a_row_of_the_table_measure_in_a_handout_that_refers_to_another_row_is_reported(self):
        page = (
            "## Measure\n\n| What | Command |\n|---|---|\n{}\n\n## Break it\n\n| the same | as "
            "above |\n"
        )
        for row, is_wrong in (
            ("| bytes | (a) with `--world 2` |", False),
            ("| the same, no prefetch | `T` |", True),
            ("| bytes of a step | as above |", True),
            ("| bytes | `--world 1`, ... |", True),
        ):
            found = [f"a row of Measure leans on another one: {row}"] if is_wrong else []
            self.assertEqual(list(texts.problems_of_measurements(page.format(row))), found)


class Points(unittest.TestCase):
    """Tests that the points which the text of COURSE.md explains agree with the output of ./fsdp
    check that it shows, and with grading/rubric.toml."""

    def setUp(self):
        page = (texts.ROOT / "COURSE.md").read_text()
        self.sample, self.text = page, " ".join(page.split())

    def test_the_points_that_course_md_explains_are_those_in_its_sample_output_of_fsdp_check(self):
        points, most, passed, failed = re.search(
            r"^3.2 post_forward +\S+ +(\S+) of +(\d) +(\d+) passed, (\d+) failed, 0 not",
            self.sample,
            re.MULTILINE,
        ).groups()
        tests = int(passed) + int(failed)
        self.assertEqual(points, f"{int(most) * int(passed) / tests:.1f}")
        self.assertIn(
            f"{passed} of {tests} passed, so problem 3.2 has {passed}/{tests} of {most} points, "
            f"{points}.",
            self.text,
        )
        self.assertIn(f"{tests - 1} of {tests} would bring {int(most) - 0.5} points", self.text)

    def test_course_md_has_the_rubrics_numbers_for_hidden_cases_and_throughput(self):
        rubric = course.rubric()
        most, full = rubric["throughput"]["points"], rubric["throughput"]["full"]
        self.assertEqual((rubric["hidden"], most), (0.25, 5))
        self.assertIn(
            "three quarters of the points are for the tests that you have. The last quarter",
            self.text,
        )
        self.assertIn("up to five extra points for throughput", self.text)
        self.assertIn(
            f"You get {most} points if r is at most {full}, and {most} x {full} / r points if it "
            f"is more: "
            f"{most / 2} points for r = {2 * full}.",
            self.text,
        )
