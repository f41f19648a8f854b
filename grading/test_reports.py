"""Tests the reports of a grading: results.json, the student's page, and the table and the page of a
class."""

import argparse
import contextlib
import csv
import dataclasses
import html
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from grader import classroom, course, programs, report, score, submission
from grader import grade as grading
import grade as grade_program
from grader.grade import Grade, most_extension_points, most_points
from grader.progress import Progress
from grader.run import Result
import schema
from fake_results import result_of, scored, whole_grade


class Reports(unittest.TestCase):
    def test_results_json_has_the_form_that_gradescope_documents(self):
        grades = (
            Grade("ada"),
            Grade("ada", refused="no tasks/"),
            whole_grade(),
            whole_grade("failed"),
        )
        for grade in grades:
            results = report.gradescope(grade)
            self.assertEqual(schema.wrong(results), [])
            graded = [t for t in results["tests"] if t["name"] != "extensions"]
            self.assertAlmostEqual(results["score"], sum(t["score"] for t in graded))
            self.assertAlmostEqual(sum(t["max_score"] for t in graded), most_points())

    def test_points_of_extensions_are_reported_but_count_in_no_total(self):
        for outcome in ("passed", "failed"):
            grade = whole_grade(outcome)
            earned = most_extension_points() if outcome == "passed" else 0
            self.assertGreater(most_extension_points(), 0)
            self.assertEqual(grade.points, 5 + (120 if outcome == "passed" else 0))
            self.assertEqual(grade.extension_points, earned)
            (entry,) = [t for t in report.gradescope(grade)["tests"] if t["name"] == "extensions"]
            self.assertFalse({"score", "max_score"} & set(entry))
            told = f"{earned:g} of {most_extension_points():g} points"
            self.assertIn(told, entry["output"])
            self.assertIn(told, report.student_page(grade))

    def test_an_extension_that_the_grader_left_out_is_reported_with_the_reason(self):
        grade = whole_grade()
        for one in grade.scores[4]:
            one.left_out = "is not run: tasks/<b>.cpp:3 has a raw string"
        for text in (report.gradescope(grade)["tests"][-1]["output"], report.student_page(grade)):
            self.assertIn("as if these extensions had not been handed in", text)
            self.assertEqual(html.unescape(text).count("<b>.cpp:3 has a raw string"), 1)

    def test_while_hidden_cases_are_not_shown_the_shown_wall_time_leaves_them_out(self):
        grade = Grade("ada", seconds=1234, usual_seconds=1000, complete=True)
        for text in (json.dumps(report.gradescope(grade)), report.student_page(grade)):
            self.assertIn("1000", text)
            self.assertNotIn("1234", text)

    def test_schema_reports_wrong_fields_of_results_json(self):
        results = report.gradescope(whole_grade())
        for name, value in (("score", "all"), ("visibility", "to me"), ("points", 3)):
            self.assertEqual(len(schema.wrong({**results, name: value})), 1, name)
        self.assertEqual(len(schema.wrong({"tests": [{"status": "ok"}]})), 2)

    def test_results_of_an_incomplete_grading_say_that_the_grader_stopped_early(self):
        half = Grade("ada", scores={1: [scored(course.tasks()[1], "own")]})
        results = report.gradescope(half)
        self.assertEqual(results["score"], course.tasks()[1].points)
        self.assertIn("The grader stopped early", results["output"])

    def test_names_and_texts_of_students_are_escaped_in_html_and_on_the_terminal(self):
        for name in ("<b>ada</b>", "<script>", "\x1b]0;x\x07", "ann\neve  120.00 points\teve"):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                Progress(1).show(name, f"tasks/x.cpp is in the submission twice: {name} and x")
            grade = Grade(name, refused=course.one_line(name))  # Refused makes its text so
            table = classroom.table([grade])
            self.assertEqual(
                (len(printed.getvalue().splitlines()), len(table.splitlines()), "\t" in table),
                (1, 2, False),
            )
            for text in (report.student_page(grade), classroom.class_page([grade])):
                self.assertNotIn(name, text)
            self.assertNotIn("\x1b", printed.getvalue() + table + text)
        page = classroom.class_page(
            [Grade("javascript:alert(1)"), Grade("a#b'?%\udcff"), Grade("\x1b]0;x\x07")]
        )
        self.assertEqual(re.findall("href='(.*?)'", page), [
            "./javascript%3Aalert%281%29/report.html", "./a%23b%27%3F%25%FF/report.html",
            "./%1B%5D0%3Bx%07/report.html"])
        self.assertEqual(score.shortened("a\x1b[2J\0\nb\udcff\tc"), "a\\x1b[2J\\x00\nb\\udcff\tc")

    def test_a_class_is_refused_if_its_results_would_be_written_over_or_among_submissions(
        self,
    ):
        for out in ("", "grades"):
            with (
                tempfile.TemporaryDirectory() as folder,
                self.assertRaisesRegex(course.Refused, "name another folder"),
            ):
                classroom.grade_all(argparse.Namespace(all=folder, out=os.path.join(folder, out)))
        for name in (
            "seed",
            "grades.csv",
            "class.html.zip",
            "grades.csv.17.partial",
            "seed.17.partial.ZIP",
        ):
            with (
                tempfile.TemporaryDirectory() as folder,
                self.assertRaisesRegex(course.Refused, "rename it"),
            ):
                path = pathlib.Path(folder) / name
                path.touch() if name.lower().endswith(".zip") else path.mkdir()
                classroom.submissions(pathlib.Path(folder))

    def test_a_file_in_a_class_that_is_not_a_submission_is_named_in_one_line(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            for name in (
                "ann.tar.gz",
                "eve.ZIP",
                "bob.zip",
                ".DS_Store",
                "x\nfsdp grade: all is well",
            ):
                (pathlib.Path(folder) / name).touch()
            self.assertEqual(
                list(classroom.submissions(pathlib.Path(folder))), ["ann", "bob", "eve"]
            )
            with self.assertRaisesRegex(
                course.Refused, "ann.tar.gz is a .tar.gz archive: hand in a zip"
            ):
                submission.read(pathlib.Path(folder) / "ann.tar.gz")
        self.assertEqual(
            said.getvalue(),
            "x\\nfsdp grade: all is well is neither a folder nor a zip: it is not graded\n",
        )

    def test_a_folder_and_a_zip_with_one_name_are_not_graded_but_other_submissions_are(self):
        with tempfile.TemporaryDirectory() as folder:
            class_, out = pathlib.Path(folder) / "class", pathlib.Path(folder) / "out"
            for name in ("ann", "bob"):
                (class_ / name).mkdir(parents=True)
            (class_ / "bob.zip").touch()
            arguments = argparse.Namespace(
                all=class_, out=out, seed="x", fresh=False, jobs=1, tasks=None
            )
            with (
                mock.patch.object(grading, "prepare", lambda only: None),
                mock.patch.object(programs, "JOBS", pathlib.Path(folder) / "jobs"),
                mock.patch.object(classroom.submission, "read", lambda path: path),
                mock.patch.object(
                    grading, "grade", lambda name, *_, **__: Grade(name, complete=True)
                ),
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                classroom.grade_all(arguments)
            rows = list(csv.DictReader((out / "grades.csv").read_text().splitlines()))
        self.assertEqual(
            [(row["submission"], row["remark"]) for row in rows],
            [
                ("ann", ""),
                ("bob", "there are bob and bob.zip, and only one can be graded: remove the other"),
            ],
        )

    def test_students_see_nothing_about_hidden_cases_before_these_are_shown(self):
        grade = whole_grade()
        task = course.tasks()[2]
        hidden = result_of(task, "failed")
        for problem in hidden.problems.values():
            problem["explanation"] = "rank 3 of 6 is wrong"
        grade.scores[2] = [
            score.score_task(task, "own", {"tests": result_of(task), "hidden": hidden})
        ]
        results = report.gradescope(grade)
        for entry in results["tests"]:
            told = "rank 3 of 6" in entry.get("output", "")
            self.assertEqual(
                told, entry["name"].startswith("2.") and "hidden" in entry["name"], entry["name"]
            )
        passed = whole_grade()
        self.assertNotEqual(passed.points, grade.points)
        passed.scores[2] = [scored(task, "own")]
        self.assertEqual(results["output"], report.gradescope(passed)["output"])
        self.assertEqual(report.student_page(grade), report.student_page(passed))
        self.assertIn("95 of 95 points", results["output"])

    def test_reports_distinguish_refused_code_code_that_does_not_compile_and_wrong_code(self):
        grade = whole_grade("failed")
        for number, why in (
            (2, "is not run: tasks/x.cpp uses system"),
            (3, "does not compile:\ntasks/x.cpp:1: error"),
        ):
            result = Result([], why)
            grade.scores[number] = [
                score.score_task(
                    course.tasks()[number], "own", {"tests": result, "hidden": result}
                )
            ]
        self.assertEqual(grade.remark, "task 2 refused: tasks/x.cpp uses system; "
                                       "task 3 does not compile: tasks/x.cpp:1: error")
        for text in (
            classroom.table([grade]),
            classroom.class_page([grade]),
            report.student_page(grade),
        ):
            self.assertIn("task 2 refused", text)
            self.assertIn("task 3 does not compile", text)
        self.assertEqual(whole_grade("failed").remark, "")

    def test_if_own_and_reference_earlier_tasks_give_equal_points_the_result_that_ran_counts(self):
        nothing = Result([], "is not run: task 1 is refused")
        own = score.score_task(course.tasks()[3], "own", {"tests": nothing, "hidden": nothing})
        self.assertEqual(
            score.better([own, scored(course.tasks()[3], "reference", "failed")]).base, "reference"
        )

    def test_the_students_page_has_a_row_for_each_task_whose_points_count(self):
        page = report.student_page(whole_grade())
        rows = re.findall(r"<th>task (\d)", page)
        self.assertEqual(rows, list("1234567"))
        self.assertIn("Extensions", page)

    def test_the_page_of_a_refused_submission_says_not_graded_and_has_no_table(self):
        grade = Grade("ada", refused="no tasks/")
        page = report.student_page(grade)
        self.assertEqual(("ada: not graded" in page, "<table>" in page), (True, False))
        self.assertNotIn("not graded yet", str(report.gradescope(grade)))

    def test_the_class_table_has_a_line_for_each_student_and_the_class_page_the_median(self):
        lines = classroom.table([whole_grade(), Grade("bob", refused="no tasks/")]).splitlines()
        self.assertEqual(len(lines), 3)
        self.assertTrue(lines[1].startswith(f'"ada","{most_points():g}","15",'))
        self.assertTrue(lines[2].endswith(',"no tasks/",""'))
        page = classroom.class_page(
            [whole_grade(), Grade("bob"), Grade("eve"), whole_grade(), Grade("kim", refused="x")]
        )
        self.assertIn(f"4 submissions, 1 more not graded, median {most_points() / 2:g} of", page)
        self.assertIn(
            "0 submissions, 1 more not graded", classroom.class_page([Grade("kim", refused="x")])
        )

    def test_the_seed_of_hidden_cases_and_findings_in_code_are_shown_only_to_the_instructor(self):
        grade = dataclasses.replace(
            whole_grade(), seed="5eed", notes=("tasks/x.cpp uses getenv: rarely",)
        )
        (entry,) = [
            t for t in report.gradescope(grade)["tests"] if t["name"] == "for the instructor"
        ]
        self.assertEqual(entry["visibility"], "hidden")
        self.assertIn("--seed 5eed", entry["output"])
        self.assertIn("uses getenv", entry["output"])
        (row,) = csv.DictReader(io.StringIO(classroom.table([grade])))
        self.assertEqual(row["to read"], "tasks/x.cpp uses getenv: rarely")
        self.assertNotIn("5eed", report.student_page(grade))

    def test_with_the_option_tasks_only_the_named_tasks_count_in_the_totals(self):
        whole = whole_grade()
        grade = dataclasses.replace(
            whole, tasks=(1, 2, 3), scores={n: whole.scores[n] for n in (1, 2, 3)}, throughput={}
        )
        results = report.gradescope(grade)
        self.assertEqual((grade.points, most_points(grade), results["score"]), (45, 45, 45))
        self.assertEqual(
            {
                tag
                for test in results["tests"]
                for tag in test.get("tags", ())
                if tag.startswith("task")
            },
            {"task 1", "task 2", "task 3"},
        )
        self.assertIn("these tasks were graded: 1, 2, 3", results["output"])
        self.assertIn('"task 3","throughput"', classroom.table([grade]))
        for text in (report.student_page(grade), classroom.class_page([grade])):
            self.assertIn("task 3", text)
            self.assertNotIn("task 4", text)

    def test_the_option_tasks_takes_numbers_and_ranges(self):
        for text, numbers in (("1-3", [1, 2, 3]), ("7", [7]), ("1,3-4", [1, 3, 4])):
            self.assertEqual(grade_program.task_numbers(text), numbers)
        for text in ("", "8", "3-1", "one", "1-", "1;2"):
            with self.assertRaises(argparse.ArgumentTypeError):
                grade_program.task_numbers(text)

    def test_results_json_has_the_points_of_each_task_and_no_tests_of_extensions(self):
        text = report.summary(whole_grade())
        self.assertIn("task 1 meta_init: 11.25 of 11.25\n", text)
        entries = report.gradescope(whole_grade())["tests"]
        numbers = {p.number for task in course.tasks() for p in task.extensions}
        self.assertFalse(numbers & {entry.get("number") for entry in entries})

    def test_an_extension_that_was_not_begun_gets_no_points(self):
        grade, last = whole_grade(), course.tasks()[-1]
        results = {"tests": result_of(last), "hidden": result_of(last)}
        grade.scores[7] = [score.score_task(last, "own", results, {"7.9"})]
        lines = report.of_extensions(grade)["output"]
        self.assertIn("7.9 keep_fp32: not begun", lines)
        self.assertEqual(grade.extension_points, most_extension_points() - 2)

    def test_the_reason_why_task_1_was_rejected_is_reported_only_once(self):
        grade, why = Grade("ada"), "tasks/task1_meta_init/meta_init.cpp uses an instruction"
        for task in course.tasks()[1:]:  # no task builds on task 0
            text = (
                f"is not run: {why}"
                if task.number == 1
                else f"is not run, {programs.EARLIER}: {why}"
            )
            result = Result([], text)
            grade.scores[task.number] = [
                score.score_task(task, "own", {"tests": result, "hidden": result})
            ]
        self.assertEqual(grade.remark, f"task 1 refused: {why}")
        del grade.scores[1]
        self.assertEqual(grade.remark.count(why), 1)

    def test_estimate_returns_how_many_minutes_the_grading_of_a_class_takes(self):
        with mock.patch.object(os, "cpu_count", lambda: 8):
            self.assertIn(
                "40 submissions, 4 at a time: about 45 minutes", classroom.estimate(40, 4)
            )
            self.assertIn(
                "1 submissions, 1 at a time: about 2 minutes", classroom.estimate(1, 4, [1, 2, 3])
            )

    def test_no_cell_of_the_class_table_is_a_formula_for_any_separator_of_cells(self):
        for name in (
            "=1+1",
            "bob;=cmd|' -C calc'!A1;x",
            "\uff1d1+1",
            'a";=1',
            "a,=1",
            "a\t=1",
            "+1",
            "-1",
            "@x",
        ):
            text = classroom.table([Grade(name, refused=name)])
            for ends in ",;\t":
                for row in csv.reader(io.StringIO(text), delimiter=ends):
                    self.assertFalse(
                        [cell for cell in row if cell.startswith(("=", "\uff1d", "+", "-", "@"))],
                        name,
                    )

    def test_a_name_that_the_terminals_encoding_lacks_is_printed_as_escape_codes(self):
        script = ("import sys; sys.argv = ['grade', '--help']; import grade\n"
                  "try: grade.main()\nexcept SystemExit: pass\nprint('\u5b66')")
        done = subprocess.run(
            [sys.executable, "-B", "-c", script],
            cwd=course.ROOT / "grading",
            capture_output=True,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(done.stdout.endswith(b"\\u5b66\n"))
