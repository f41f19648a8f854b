"""Tests how points are computed, which results are kept, and what happens to damaged results."""

import dataclasses
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from grader import compiling, course, programs, report, run, score, submission, throughput
from grader import grade as grading
from grader.grade import Grade
from grader.run import Result
from fake_results import result_of, scored


class Scores(unittest.TestCase):
    def test_a_task_gets_all_points_if_all_tests_pass_and_none_if_its_sentinel_test_fails(self):
        for task in course.tasks():
            self.assertAlmostEqual(scored(task, "own").points, task.points)
            self.assertEqual(scored(task, "own", "not started", sentinel_fails=True).points, 0)
            held = scored(task, "own", sentinel_fails=True)
            self.assertEqual((held.points, task.sentinel in held.remark), (0, True))
            self.assertEqual([points for _, points in held.extensions], [0] * len(task.extensions))
            self.assertEqual(
                [points for _, points in scored(task, "own").extensions],
                [p.points for p in task.extensions],
            )

    def mixed(self, base, usual, hidden):
        task = course.tasks()[2]
        return score.score_task(
            task, base, {"tests": result_of(task, usual), "hidden": result_of(task, hidden)}
        )

    def test_usual_tests_and_hidden_cases_each_count_with_the_better_of_own_or_reference_tasks(
        self,
    ):
        """The better of two results counts: with the task linked with the student's own earlier
        tasks, or with the reference solutions of them. Usual tests and hidden cases are chosen
        independently, because what a student sees must not depend on hidden cases."""
        bases, outcomes = ("own", "reference"), ("passed", "failed")
        for usual in outcomes:
            for hidden in outcomes:
                best = score.better(
                    [self.mixed("own", usual, hidden), self.mixed("reference", "failed", "passed")]
                )
                self.assertEqual(
                    (best.base, best.base_of_hidden), ("own", bases[hidden == "failed"])
                )
                self.assertEqual(
                    best.points_of("hidden"), course.tasks()[2].points * course.rubric()["hidden"]
                )
        best = score.better(
            [self.mixed("own", "failed", "passed"), self.mixed("reference", "passed", "failed")]
        )
        self.assertEqual((best.base, best.points), ("reference", course.tasks()[2].points))

    def test_a_sentinel_test_that_fails_only_in_hidden_cases_costs_only_their_points(self):
        task = course.tasks()[2]
        results = {
            "tests": result_of(task),
            "hidden": result_of(task, "failed", sentinel_fails=True),
        }
        got = score.score_task(task, "own", results)
        self.assertAlmostEqual(got.points, task.points * (1 - course.rubric()["hidden"]))

    def test_read_result_reads_the_json_of_check_and_gives_no_result_for_other_content(self):
        written = {
            "points": 2,
            "possible": 4,
            "sentinel_fails": [2],
            "problems": [
                {
                    "number": "2.1",
                    "passed": 1,
                    "failed": 1,
                    "not_started": 0,
                    "share": 0.5,
                    "explanation": "is 3",
                }
            ],
            "tests": [
                {"test": "T2_1_layout.a", "ranks": "W1", "outcome": "failed", "text": "is 3"}
            ],
        }
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tests.json"
            path.write_text(json.dumps(written))
            result, other = (run.read_result(path, course.tasks()[i], 1.5) for i in (2, 3))
            self.assertEqual(
                (result.problems["2.1"]["share"], result.sentinel_fails, other.sentinel_fails),
                (0.5, True, False),
            )
            for text in (
                "[" * 100_000,
                '{"a":' * 100_000,
                "",
                "\0",
                "9" * 10_000,
                "{}",
                '{"tests": [{}]}',
            ):
                path.write_text(text)
                self.assertIn("gave no result", run.read_result(path, course.tasks()[2], 0).why)


class Kept(unittest.TestCase):
    def test_results_are_kept_for_later_gradings_unless_the_machine_may_have_caused_them(self):
        failed = {"test": "a", "ranks": "W2", "outcome": "failed"}
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(compiling, "KEPT", pathlib.Path(folder)),
        ):
            for result, kept in (
                *(
                    (Result([], why), kept)
                    for why, kept in (
                        ("", True),
                        ("does not compile:\nx.cpp:1: error", True),
                        ("is not run: uses system", True),
                        ("gave no result: its tests did not end", False),
                        ("does not compile:\nx.o: No space left on device", False),
                        (
                            "does not compile:\nc++: fatal error: Killed signal terminated "
                            "program cc1plus",
                            False,
                        ),
                    )
                ),
                *(
                    (Result([{**failed, "text": text}]), False)
                    for text in (
                        "rank 1 was killed by signal 9 (Killed)",
                        "the program of the ranks was killed: Killed",
                        "left by exit(137)",
                        compiling.NO_REASON,
                    )
                ),
                (Result([{"points": 5, "ratio": 1.0}]), True),
                (Result([{"points": 0, "why": "training did not end in time"}]), True),
                (Result([{"points": 0, "why": "training failed: No space left on device"}]), False),
                (
                    Result(
                        [{"points": 0, "why": "gave no result: the reference's training failed"}]
                    ),
                    False,
                ),
            ):
                run.keep(str(result), "", result)
                self.assertEqual(run.kept(str(result), ""), result if kept else None)

    def test_a_kept_result_that_a_power_failure_damaged_is_ignored(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(compiling, "KEPT", pathlib.Path(folder)),
        ):
            run.keep("key", "", Result([]))
            for content in ("", "{", "[]", '{"mine": 1}'):
                run.result_file("key", "").write_text(content)
                self.assertIsNone(run.kept("key", ""), content)


class Grades(unittest.TestCase):
    def test_a_grade_has_the_wall_time_of_this_grading_and_the_number_of_kept_results(self):
        known = mock.patch.object(run, "kept", lambda key, seed: Result([], "", 200.0))
        trained = mock.patch.object(throughput, "measure", lambda *_: {"points": 0})
        with known, trained, tempfile.TemporaryDirectory() as job:
            done = grading.grade("ada", submission.completed({}), "seed", job)
        self.assertLess(done.seconds, 100)
        self.assertEqual(done.known, 2 * len(programs.all_programs()))
        self.assertIn(f"({done.known} results were known from before)", report.summary(done))


class Remembered(unittest.TestCase):
    def test_findings_of_look_sh_in_the_code_are_reported_also_if_the_results_were_kept(self):
        known = mock.patch.object(
            run, "kept", lambda key, seed: Result([], "", 1.0, notes=["tasks/x.cpp uses getenv"])
        )
        trained = mock.patch.object(throughput, "measure", lambda *_: {"points": 0})
        with known, trained, tempfile.TemporaryDirectory() as job:
            done = grading.grade("ada", submission.completed({}), "5eed", job)
        self.assertEqual((done.notes, done.seed), (("tasks/x.cpp uses getenv",), "5eed"))

    def test_calls_that_end_a_rank_are_reported_only_if_a_test_of_the_problem_fails(self):
        task = course.tasks()[2]
        for outcome, told in (("failed", True), ("passed", False)):
            result = dataclasses.replace(
                result_of(task, outcome), stopped=["tasks/x.cpp uses write: no files"]
            )
            found = score.score_task(task, "own", {"tests": result, "hidden": result})
            self.assertEqual(
                ["uses write" in p.text for p in found.problems], [told] * len(task.problems)
            )


class Patience(unittest.TestCase):
    LIMITS = course.rubric()["limits"]

    def result(self, texts, seconds=100.0):
        return Result(
            [{"test": "a", "outcome": "failed", "text": text} for text in texts], seconds=seconds
        )

    def test_after_many_hanging_tests_the_next_program_may_waste_less_time_before_it_is_ended(
        self,
    ):
        patience = run.Patience()
        self.assertEqual(patience.of_next(), self.LIMITS["task_lost_seconds"])
        hangs = [
            "rank 0 was still running at the time limit",
            "the program of the ranks did not report within 30 s",
            "rank 0: longer than the time limit (CommunicatorOptions::timeout)",
            "rank 0 is 3",
        ]
        self.assertEqual(run.lost_seconds(self.result(hangs)), 42)
        patience.add(self.result(hangs * 10))
        self.assertEqual(patience.of_next(), self.LIMITS["lost_seconds_at_last"])
        self.assertFalse(patience.is_over())

    def test_no_program_runs_after_programs_with_failed_tests_have_taken_too_long(self):
        for outcome, over in (("passed", False), ("", True), ("failed", True)):
            patience = run.Patience()
            tests = [{"test": "a", "outcome": outcome}] if outcome else []
            patience.add(Result(tests, seconds=self.LIMITS["failing_seconds"]))
            self.assertEqual(patience.is_over(), over)
        result = run.run_tests(pathlib.Path("none"), course.tasks()[2], "", patience)
        self.assertEqual((result.why, result.cut_short), (run.OVER, True))

    def test_a_result_is_not_kept_if_time_ran_out_before_all_tests_were_run(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(compiling, "KEPT", pathlib.Path(folder)),
        ):
            run.keep("key", "", Result([], cut_short=True))
            self.assertIsNone(run.kept("key", ""))

    def test_hanging_tests_of_one_submission_waste_less_than_15_minutes_in_total(self):
        patience, lost = run.Patience(), 0
        for _ in 2 * programs.all_programs():  # hidden cases run too if only sentinels pass
            of_one = patience.of_next()
            patience.add(
                self.result(["rank 0 was still running at the time limit"] * (of_one // 20))
            )
            lost += of_one
        self.assertLess(lost, 15 * 60)


class Held(unittest.TestCase):
    TASK = course.tasks()[2]
    PROGRAM = programs.Program(TASK, "reference")

    def kinds_that_ran(self, kept, sentinel_fails):
        """Returns which kinds of tests ("tests", "hidden") run for a program. `kept`: whether the
        result of its usual tests is known from an earlier grading. `sentinel_fails`: whether the
        sentinel fails, the test that must pass before the task gets any points."""
        ran, result = [], result_of(self.TASK, sentinel_fails=sentinel_fails)

        def run_tests(path, task, seed, patience):
            ran.append("hidden" if seed else "tests")
            return result_of(self.TASK, sentinel_fails=sentinel_fails)

        with (
            mock.patch.object(run, "kept", lambda key, seed: result if kept and not seed else None),
            mock.patch.object(run, "keep", lambda *_: None),
            mock.patch.object(run, "run_tests", run_tests),
            tempfile.TemporaryDirectory() as job,
        ):
            builder = programs.Builder(submission.completed({}), job)
            builder.compile = lambda *_: None
            builder.build = lambda program: programs.Built(pathlib.Path("made"))
            found = grading.results(builder, "seed", [self.PROGRAM])
            self.assertEqual([kind for _, kind, *_ in found], ["tests", "hidden"])
        return ran

    def test_hidden_cases_run_unless_the_sentinel_test_fails_in_the_usual_tests(self):
        self.assertEqual(self.kinds_that_ran(kept=False, sentinel_fails=False), ["tests", "hidden"])
        self.assertEqual(self.kinds_that_ran(kept=True, sentinel_fails=False), ["hidden"])
        self.assertEqual(self.kinds_that_ran(kept=False, sentinel_fails=True), ["tests"])
        self.assertEqual(self.kinds_that_ran(kept=True, sentinel_fails=True), [])


class Throughput(unittest.TestCase):
    PRINTED = "param sum 1.0 (change +0.1), sha256 abc123\n"

    def trained(self, text, status=0):
        with mock.patch.object(run, "run", lambda *_: (status, text)):
            return throughput.train("script", 1)

    def test_a_training_that_prints_a_second_hash_of_parameters_does_not_count(self):
        got = self.trained("step 1\n" + self.PRINTED)
        self.assertEqual((got.parameters, got.why), ("abc123", ""))
        for text in ("sha256 0\n" + self.PRINTED, self.PRINTED + "x sha256 abc123"):
            self.assertEqual(self.trained(text).why, "training prints its result more than once")

    def test_throughput_is_measured_if_the_usual_tests_pass_whatever_hidden_cases_do(self):
        last = course.tasks()[-1]
        for usual, tried in (("passed", True), ("failed", False)):
            grade = Grade("ada")
            results = {"tests": result_of(last, usual), "hidden": result_of(last, "failed")}
            grade.scores[last.number] = [score.score_task(last, "own", results)]
            with (mock.patch.object(run, "kept", lambda *_: Result([{"points": 5, "ratio": 1.0}])),
                  tempfile.TemporaryDirectory() as folder):
                builder = programs.Builder(submission.completed({}), folder)
                measured = throughput.measure(builder, grade, "seed", False)
            self.assertEqual("ratio" in measured, tried)

    def test_throughput_compares_with_the_reference_whose_failure_is_the_machines_fault(
        self,
    ):
        of_reference, failed = (
            throughput.Training(2.0, "abc"),
            throughput.Training(why="training failed"),
        )
        for own, points, of_machine in (
            (throughput.Training(2.4, "abc"), 5, False),
            (throughput.Training(4.8, "abc"), 2.5, False),
            (throughput.Training(2.0, "abd"), 0, False),
            (failed, 0, False),
            (None, 0, True),
        ):
            runs = {"program": own or failed, "reference_train": of_reference if own else failed}
            with (mock.patch.object(throughput, "train", lambda path, _: runs[path.name]),
                  mock.patch.object(throughput.shutil, "copy", lambda path, folder: path),
                  mock.patch.object(run, "sandboxed", lambda path, script: path)):
                measured = throughput.compare(pathlib.Path("program"), 1)
            self.assertEqual(
                (measured["points"], run.is_of_the_machine(Result([measured]))),
                (points, of_machine),
            )

    def test_a_failed_training_is_reported_with_the_end_of_its_output(self):
        self.assertIn("no loss", self.trained("no loss").why)
        self.assertIn("at the end", self.trained(self.PRINTED + "at the end", 1).why)
