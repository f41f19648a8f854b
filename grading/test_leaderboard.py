"""Tests the numbers of the leaderboard, and which trainings do not count."""

import contextlib
import dataclasses
import io
import json
import multiprocessing
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import fake_results
import leaderboard as program
import schema
from grader import leaderboard, leaderboard_entry, report, run, submission
from grader.course import BUILD, ROOT, Refused

SINGLE = leaderboard.Counted(8_000, 8_000, 100_000_000, 2_000_000, "abc")
RANKS = leaderboard.Counted(2_500, 2_000, 60_000_000, 1_900_000, "abc")


def printed(counted):
    return (
        f"step 3/3  loss 1\nparam sum 1.5 (change +0.1), sha256 {counted.parameters}\n"
        f"counted: {counted.nanoseconds:,} ns for 3 steps; each rank computed for "
        f"{counted.computing:,} ns, with {counted.peak:,} bytes of tensors and {counted.other:,} "
        f"bytes of other memory\n"
    )


def changed(**numbers):
    return dataclasses.replace(RANKS, **numbers)


class Leaderboard(unittest.TestCase):
    def refusal(self, what, *arguments):
        with self.assertRaises(Refused) as caught:
            what(*arguments)
        return str(caught.exception)

    def test_a_training_that_ends_with_the_parameters_of_one_process_counts(self):
        leaderboard.check(RANKS, SINGLE)
        self.assertEqual(leaderboard.counted(0, printed(RANKS)), RANKS)
        self.assertEqual(RANKS.milliseconds, 0.0025)

    def test_a_training_with_a_memory_peak_above_the_limit_is_refused_with_the_bytes_above_it(self):
        leaderboard.check(changed(peak=leaderboard.MEMORY), SINGLE)
        self.assertIn(
            "which are 17 bytes more than the 64,000,000 allowed",
            self.refusal(leaderboard.check, changed(peak=leaderboard.MEMORY + 17), SINGLE),
        )

    def test_a_training_that_ends_with_other_parameters_than_one_process_is_refused(self):
        self.assertIn(
            "ends with other parameters (sha256 abd)",
            self.refusal(leaderboard.check, changed(parameters="abd"), SINGLE),
        )

    def test_a_training_is_refused_if_a_rank_computes_for_less_time_than_its_share_needs(self):
        leaderboard.check(changed(computing=1_998), SINGLE)  # 2 ns less are allowed
        self.assertIn(
            "a rank computed for 1,997 ns only, but the model and its recomputation need 2,000 ns",
            self.refusal(leaderboard.check, changed(computing=1_997), SINGLE),
        )

    def test_a_training_is_refused_if_a_rank_has_too_much_memory_besides_tensors(self):
        most = SINGLE.other + leaderboard.OTHER_MEMORY
        leaderboard.check(changed(other=most), SINGLE)
        self.assertIn(
            "which are 5 bytes more than allowed; keep data in tensors",
            self.refusal(leaderboard.check, changed(other=most + 5), SINGLE),
        )

    def test_leaderboard_toml_may_not_choose_options_that_change_what_is_trained(self):
        for name in ("seed", "model", "steps", "link", "flops", "batch", "world", "lr", "json",
                     "param-dtype", "reduce-dtype", "offload", "threads", "mode", "config"):
            self.assertIn(
                f"leaderboard.toml: {name} may not be chosen; allowed: wrap, ",
                self.refusal(leaderboard.choices_of, f"{name} = 1".encode()),
            )
        self.assertEqual(
            leaderboard.choices_of(b'limit = 3\nprefetch = false\nwrap = "block --seed 1"'),
            ["--limit=3", "--prefetch=off", "--wrap=block --seed 1"],
        )

    def test_a_leaderboard_toml_with_invalid_toml_or_a_wrong_type_is_refused_in_one_line(self):
        for content in (b"limit = ", b"\xff", b"[limit]", b"limit = [1]", b"limit = 1.5"):
            why = self.refusal(leaderboard.choices_of, content)
            self.assertTrue(why.startswith("leaderboard.toml") and why.isprintable(), why)

    def test_a_training_is_refused_if_graded_code_prints_a_second_result_line(self):
        forged = printed(changed(nanoseconds=1))
        for text in (printed(RANKS) + forged, forged.strip() + printed(RANKS), "counted: " +
                     printed(RANKS), "sha256 x" + printed(RANKS)):
            self.assertEqual(
                self.refusal(leaderboard.counted, 0, text),
                "the training prints its result more than once",
            )

    def test_a_training_that_fails_or_exceeds_its_time_is_refused(self):
        self.assertEqual(
            self.refusal(leaderboard.counted, None, ""), "the training did not end in time"
        )
        for status, text in ((1, printed(RANKS)), (0, "no result"), (0, "")):
            self.assertIn("the training failed: ", self.refusal(leaderboard.counted, status, text))

    def test_the_error_for_an_unreadable_file_of_leaderboard_choices_has_its_path_and_cause(self):
        with self.assertRaises(SystemExit) as ended:
            program.main("no program", ["/no/such/choices.toml"])
        self.assertEqual(
            str(ended.exception),
            "fsdp leaderboard: /no/such/choices.toml can't be read: No such file or directory",
        )

    def test_the_leaderboard_does_not_replace_the_choices_by_its_json_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file, link = pathlib.Path(folder) / "choices.toml", pathlib.Path(folder) / "link"
            file.write_text("limit = 2\n")
            link.symlink_to(file)
            said = io.StringIO()
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                program.main("no program", [str(file), "--json", str(link)])
            self.assertIn(f"--json {link}: has the choices, which would be replaced",
                          said.getvalue())
            self.assertEqual(file.read_text(), "limit = 2\n")

    def test_the_leaderboard_prints_its_numbers_even_if_it_cannot_write_the_json_file(self):
        said = io.StringIO()
        with (mock.patch.object(leaderboard, "measure", return_value=RANKS),
              contextlib.redirect_stdout(said), self.assertRaises(SystemExit) as ended):
            program.main("no program", ["--json", "/no/such/numbers.json"])
        self.assertIn("60,000,000 of 64,000,000 bytes", said.getvalue())
        self.assertEqual(
            str(ended.exception),
            "fsdp leaderboard: /no/such/numbers.json can't be written: No such file or directory",
        )

    def test_the_run_in_one_process_gets_the_seed_microbatches_and_recomputation_of_the_ranks(self):
        ran = []

        def train(result):
            return lambda arguments: ran.append(arguments) or (0, printed(result))

        content = b'microbatches = 8\nwrap = "none"\ncheckpoint-activations = "all"'
        self.assertEqual(leaderboard.measure(content, 7, train(SINGLE), train(RANKS)), RANKS)
        single, ranks = ran
        self.assertEqual(single[:2], ["--mode", "single"])
        self.assertEqual(ranks[:2], ["--mode", "fsdp"])
        self.assertEqual(single[2:], [word for word in ranks[2:] if word != "--wrap=none"])
        self.assertEqual(
            single[-4:], ["--seed", "7", "--microbatches=8", "--checkpoint-activations=all"]
        )


    def test_a_failed_run_in_one_process_counts_as_a_fault_of_the_machine(self):
        why = self.refusal(leaderboard.measure, b"", 7, lambda _: (1, "no memory"), None)
        self.assertEqual(
            why, "gave no result: in one process, the training failed: no memory"
        )
        self.assertTrue(run.is_of_the_machine(run.Result([{"why": why}])))


class Graded(unittest.TestCase):
    def test_results_json_has_the_leaderboards_time_or_the_reason_why_it_does_not_count(self):
        grade = fake_results.whole_grade()
        results = report.gradescope(grade)
        self.assertEqual(schema.wrong(results), [])
        self.assertIn("the training takes 2,656.084 ms", results["output"])
        self.assertEqual(results["leaderboard"][0],
                         {"name": "counted ms", "value": 2656.084, "order": "asc"})
        grade.leaderboard = {"why": "a rank has too much"}
        results = report.gradescope(grade)
        self.assertEqual(schema.wrong(results), [])
        self.assertEqual([leader["name"] for leader in results["leaderboard"]],
                         ["seconds / reference"])
        self.assertIn("Not on the leaderboard: a rank has too much.", results["output"])

    def test_the_leaderboard_toml_of_a_submission_is_read_but_is_not_a_source(self):
        with tempfile.TemporaryDirectory() as folder:
            tasks = pathlib.Path(folder) / "tasks"
            path = tasks / "task1_meta_init" / "meta_init.cpp"
            path.parent.mkdir(parents=True)
            path.write_text("// mine\n")
            self.assertIsNone(submission.read(folder).choices)
            (tasks / leaderboard.FILE).write_text("limit = 3\n")
            read = submission.read(folder)
        self.assertEqual(read.choices, b"limit = 3\n")
        self.assertNotIn(leaderboard.FILE, read.files)

    def test_the_leaderboard_does_not_measure_a_submission_without_throughput_points(self):
        builder = mock.Mock()
        grade = fake_results.whole_grade()
        builder.submission.choices = None
        self.assertEqual(leaderboard_entry.of_submission(builder, grade, "seed", False), {})
        builder.submission.choices = b""
        grade.throughput = {"points": 0, "why": "training failed"}
        self.assertIn("why", leaderboard_entry.of_submission(builder, grade, "seed", False))

    def test_the_leaderboard_does_not_measure_code_that_could_change_the_counted_time(self):
        builder, grade = mock.Mock(), fake_results.whole_grade()
        builder.submission.choices = b""
        builder.submission.digest = lambda _: ""
        note = "tasks/x.cpp uses at::clearCallbacks: it changes what is measured, or what LibTorch"
        builder.notes.return_value = ["tasks/y.cpp uses glob", note]
        measured = leaderboard_entry.of_submission(builder, grade, "seed", True)
        self.assertEqual(measured, {"why": f"{note}; the leaderboard takes no such code"})
        builder.build.assert_not_called()

    def test_the_leaderboard_runs_the_submission_on_ranks_and_the_reference_in_one_process(self):
        def run_fake(command, _environment, _seconds):
            is_single = "single" in command
            self.assertEqual(command[0].name, "reference_train" if is_single else "program")
            return 0, printed(SINGLE if is_single else RANKS)

        with (mock.patch.object(run, "run", run_fake),
              mock.patch.object(run, "sandboxed", lambda path, script: path),
              mock.patch.object(leaderboard_entry.shutil, "copy",
                                lambda path, folder: folder / path.name)):
            measured = leaderboard_entry.of_program(pathlib.Path("/x/program"), b"limit = 2", "5")
        self.assertEqual(measured, {"milliseconds": 0.0025, "peak": 60_000_000})


class OnThisMachine(unittest.TestCase):
    """Tests the leaderboard's numbers of the reference solutions on this machine. The expected
    numbers are written here, because they are the same on every machine and change only if the
    model, the solutions or LibTorch's operators change. tests/reference/test_counted_run.cpp tests
    that the number of threads does not change them."""

    TRAIN = BUILD / "bin" / "reference_train"

    def measured(self, choices, *options):
        with tempfile.TemporaryDirectory() as folder:
            file, numbers = (pathlib.Path(folder) / name for name in ("choices", "numbers"))
            file.write_text(choices)
            with contextlib.redirect_stdout(io.StringIO()):
                program.main(self.TRAIN, [str(file), "--json", str(numbers), *options])
            found = json.loads(numbers.read_text())
        return found["milliseconds"], found["peak"]

    def setUp(self):
        subprocess.run([ROOT / "fsdp", "build", "reference_train"], check=True, capture_output=True)

    def test_the_leaderboards_numbers_are_the_same_on_a_busy_machine(self):
        busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(2)]
        for process in busy:
            process.start()
        try:
            found = self.measured("microbatches = 8\n")
        finally:
            for process in busy:
                process.kill()
        self.assertEqual(found, (2656.083712, 58_797_920))
        self.assertEqual(self.measured((ROOT / "tasks" / leaderboard.FILE).read_text()), found)

    def test_recomputed_activations_or_no_prefetch_take_more_counted_time_and_less_memory(self):
        default = self.measured("microbatches = 8\n")
        without_prefetch = self.measured("microbatches = 8\nprefetch = false\n")
        recomputed = self.measured('checkpoint-activations = "all"\n')
        self.assertLess(default[0], without_prefetch[0])
        self.assertLess(default[0], recomputed[0])
        self.assertLess(without_prefetch[1], default[1])
        self.assertLess(recomputed[1], default[1])

    def test_the_leaderboard_refuses_settings_that_need_more_memory_than_allowed(self):
        with self.assertRaises(SystemExit) as ended:
            self.measured("limit = 2\n")
        self.assertIn("19,504,540 bytes more than the 64,000,000 allowed", str(ended.exception))


def spin():
    while True:
        pass


if __name__ == "__main__":
    unittest.main()
