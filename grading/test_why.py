"""Tests ./fsdp why. For a fault it must name the line that caused the wrong value; for the
reference solution it must say that no test has failed. The tests are skipped if a program is not
built or if this machine cannot watch a process."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import changed
import faults
from grader.course import BUILD, ROOT

WHY = BUILD / "bin" / "why"
PROGRAM = BUILD / "bin" / "reference_task2_tests"
TRAIN = BUILD / "bin" / "reference_train"
DIFF = BUILD / "bin" / "diff"


def environment_of(command):
    """Returns the environment variables and the arguments of the program that a recording has.
    Reads them from `command`, the path of the file `command` in the recording."""
    words = iter(command.read_bytes().decode().split("\0")[2:])
    variables = dict(word.split("=", 1) for word in iter(lambda: next(words), ""))
    return variables, [word for word in words if word]


def answer(program, test, folder, reference=None):
    """Runs a test and records it. Returns what ./fsdp why prints about the recording; if
    `reference` is given, compared with this test program."""
    recording = pathlib.Path(folder, "recording")
    subprocess.run(
        [program, f"--gtest_filter={test}/W2"], cwd=folder, capture_output=True,
        env={**os.environ, "FSDP_RECORD": recording},
    )
    return answer_about(recording, program, reference)


def answer_about(recording, program, reference=None):
    """Returns what ./fsdp why prints about the recording of a run of `program`; `reference` as in
    answer()."""
    chosen = subprocess.run([WHY, "--choose", recording], capture_output=True, text=True)
    if chosen.returncode:
        return chosen.stderr
    of_test, rank, run = chosen.stdout.split()
    variables, arguments = environment_of(pathlib.Path(of_test, "command"))
    variables.pop("FSDP_RECORD")
    beside = ["--reference", reference] if reference else []
    replay = {"FSDP_REPLAY": f"{of_test}/{run}/rank-{rank}", "FSDP_ROOT": str(ROOT)}
    done = subprocess.run(
        [WHY, *beside, of_test, program, *arguments], capture_output=True, text=True,
        env={**os.environ, **variables, **replay},
    )
    return done.stdout + done.stderr


# Kind of fault -> one fault of this kind: the change of the solution, the test that fails, and
# `named`, the function and the text of the line that ./fsdp why must name first. There is one kind
# for each way in which ./fsdp why finds a line.
FAULTS = {
    # The wrong value was computed from another wrong value. ./fsdp why follows the value back
    # through operators and the collective to the line that wrote right elements but not the wrong
    # one.
    "computed_from_a_wrong_value": {
        "task": 2,
        "file": "flat_parameter.cpp",
        "old": "  if (!gaps.empty()) at::_foreach_zero_(gaps);",
        "new": "",
        "test": "T2_5_flat_gradient."
        "a_gradient_is_flattened_in_row_major_order_whatever_its_strides",
        "named": "FlatParameterImpl::flatten_gradients\n      if (!places.empty())",
    },
    # No line has written the value that the test reads, because a condition skipped the code that
    # writes it. ./fsdp why must name the line with the condition.
    "passed_over": {
        "task": 0,
        "file": "ddp.cpp",
        "old": "    if (!parameter.requires_grad()) continue;",
        "new": "    if (parameter.requires_grad()) continue;",
        "test": "T0_1_all_reduce.a_gradient_that_is_not_contiguous_is_averaged_too",
        "named": "all_reduce_gradients\n      if (!parameter.requires_grad()) continue;",
    },
    # The value that the test reads is the result of a collective, and no line has waited for the
    # collective. ./fsdp why must name the function that should wait.
    "not_waited_for": {
        "task": 0,
        "file": "ddp.cpp",
        "old": "      bucket.reduction.wait();\n      sums",
        "new": "      sums",
        "test": "T0_2_bucket_reducer."
        "a_bucket_holds_the_sums_of_its_gradients_at_their_places",
        "named": "BucketReducerImpl::finish\n",
    },
}


# Kind of fault -> a fault of this kind in flat_parameter.cpp, which changes a training: the change,
# a text that ./fsdp why must print, and `named` as in FAULTS. The lines are those of the solution
# without the fault, because ./fsdp why reads its file.
FAULTS_OF_RUNS = {
    # The last write combines right values in a wrong way.
    "wrong_at_the_end": {
        "old": "    sharded_gradient_.add_(reduced_);",
        "new": "    sharded_gradient_.sub_(reduced_);",
        "said": "reduced gradient",
        "named": "FlatParameterImpl::wait_for_reduction\n      sharded_gradient_.add_(reduced_);",
    },
    # A line computes a wrong value from the gradient of the microbatch, and later lines add it.
    "wrong_at_the_beginning": {
        "old": "reduce_scatter_into(reduced_, gradient_, unit_);",
        "new": "reduce_scatter_into(reduced_, gradient_.mul(2), unit_);",
        "said": "reduced gradient",
        "named": "FlatParameterImpl::reduce_gradient\n      reduction_ = comm_->reduce_scatter",
    },
    # The run fails.
    "fails": {
        "old": "  reduction_.wait();\n  gradient_.reset();\n  // Divides",
        "new": "  gradient_.reset();\n  // Divides",
        "said": "This line threw the exception.",
        "named": "FlatParameterImpl::reduce_gradient\n",
    },
}


# Kind of difference between a faulty solution and the reference solution -> a fault of the bank
# with this difference, a text that ./fsdp why must print, and the function that it must name first.
FAULTS_BESIDE_REFERENCE = {
    "calls_an_operator_less": {
        "task": 2,
        "fault": "sum_not_mean",
        "said": "the reference solution called torch's div_.",
        "named": "FlatParameterImpl::wait_for_reduction\n",
    },
    "decides_otherwise": {
        "task": 4,
        "fault": "as_many_as_were_counted_or_more",
        "said": "Then it ran BackwardHooksImpl::post_backward;",
        "named": "BackwardHooksImpl::come_back\n",
    },
    "passes_other_values": {
        "task": 5,
        "fault": "padding_counts_in_the_norm",
        "said": "your code did the same as the reference solution.",
        "named": "ShardedOptimizerImpl::clip_grad_norm\n",
    },
}


def bank_fault(task, name):
    return next(one for one in faults.load(task) if one["name"] == name)


def reference_program(task):
    return BUILD / "bin" / f"reference_task{task}_tests"


def answer_to(fault, reference=None):
    """Builds the test program with this fault, and returns what ./fsdp why prints about the fault's
    test; `reference` as in answer()."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "tests")
        changed.build(fault["task"], fault, program)
        return answer(program, fault["test"], folder, reference)


def build_other_solution(folder, old, new):
    """Builds the tests of task 4 in `folder`, linked with the second solution, which has other
    functions than the reference solution, and in which `new` replaces `old`. Returns the
    program."""
    name = "task4_backward_hooks/backward_hooks.cpp"
    text = (ROOT / "grading" / "second_solution" / name).read_text()
    source = pathlib.Path(folder, "backward_hooks.cpp")
    source.write_text(changed.replaced(text, {"file": name, "old": old, "new": new}, name))
    path = ROOT / "solutions" / name
    changed.compile_as(path, source, 4, source.with_suffix(".o"))
    program = pathlib.Path(folder, "tests")
    changed.link_with(4, [source.with_suffix(".o")], [path], program)
    return program


@unittest.skipUnless(
    all(program.exists() for program in (WHY, PROGRAM, TRAIN, DIFF)),
    "./fsdp build why diff reference_train reference_task2_tests",
)
class Why(unittest.TestCase):
    def test_why_names_the_function_and_file_that_wrote_the_wrong_number(self):
        said = answer_to(bank_fault(2, "second_pass_replaces_the_first"))
        if "ptrace" in said or "x86-64" in said:
            self.skipTest(said)
        self.assertIn("FlatParameterImpl::wait_for_reduction\n", said)
        self.assertIn("solutions/task2_flat_parameter/flat_parameter.cpp:", said)

    def test_why_names_first_the_function_and_line_of_each_kind_of_fault(self):
        for name, fault in FAULTS.items():
            if not reference_program(fault["task"]).exists():
                continue
            with self.subTest(name):
                said = answer_to({"name": name, **fault})
                self.check_first(said, {"said": "", **fault})

    def check_first(self, said, fault):
        """Checks that ./fsdp why has printed fault["said"], and has named fault["named"] first."""
        if "ptrace" in said or "x86-64" in said:
            self.skipTest(said)
        self.assertIn(fault["said"], " ".join(said.split()))
        first = re.search(r"^  \S+:\d+, in (.*\n.*\n)", said, re.MULTILINE)
        self.assertIsNotNone(first, said)
        self.assertTrue(first[1].startswith(fault["named"]), said)

    def test_why_says_where_a_solution_parts_from_the_reference_solution(self):
        for name, case in FAULTS_BESIDE_REFERENCE.items():
            reference = reference_program(case["task"])
            if not reference.exists():
                continue
            with self.subTest(name):
                fault = bank_fault(case["task"], case["fault"])
                self.check_first(answer_to(fault, reference), case)

    @unittest.skipUnless(reference_program(4).exists(), "./fsdp build reference_task4_tests")
    def test_why_compares_collectives_alone_if_a_solution_has_other_functions(self):
        wait = "  if (reducing_) reducing_->wait_for_reduction();\n  reducing_ = unit.flat;"
        with tempfile.TemporaryDirectory() as folder:
            program = build_other_solution(folder, wait, "  reducing_ = unit.flat;")
            test = "T4_4_finish.no_unit_stays_unsharded_and_no_full_gradient_is_left"
            self.check_first(answer(program, test, folder, reference_program(4)), {
                "said": "Then it issued reduce_scatter blocks1; the reference solution waited for "
                "reduce_scatter blocks2.",
                "named": "BackwardHooksImpl::reduce\n",
            })

    def test_why_compares_nothing_if_the_reference_solution_fails_too(self):
        faulty = bank_fault(2, "sum_not_mean")
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "tests")
            changed.build(2, faulty, program)
            said = answer(program, faulty["test"], folder, program)
        self.assertIn("torch's copy_, called by this line, wrote the value.", said)
        self.assertNotIn("reference solution", said)

    def test_why_names_the_line_that_made_two_runs_differ(self):
        microbatches = "--microbatches 4"
        for name, fault in FAULTS_OF_RUNS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                program = pathlib.Path(folder, "train")
                recording = pathlib.Path(folder, "recording")
                change = {"name": name, "task": 2, "file": "flat_parameter.cpp", **fault}
                changed.build(2, change, program, "bin/reference_train")
                done = subprocess.run(
                    [DIFF, "--a", f"--mode single {microbatches}"]
                    + ["--b", f"--mode fsdp --world 2 {microbatches}", "--record", recording]
                    + ["--binary-a", TRAIN, "--binary-b", program],
                    capture_output=True, text=True,
                )
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.check_first(answer_about(recording, program), fault)

    def test_diff_records_nothing_if_the_bits_are_equal(self):
        with tempfile.TemporaryDirectory() as folder:
            recording = pathlib.Path(folder, "recording")
            run = "--mode single --steps 1"
            done = subprocess.run(
                [DIFF, "--a", run, "--b", run, "--binary-a", TRAIN, "--record", recording],
                capture_output=True, text=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertFalse(recording.exists())

    def test_why_says_that_there_is_no_failed_test_if_all_pass(self):
        test = "T2_5_flat_gradient.the_sharded_gradient_is_the_mean_over_ranks"
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("no failed test", answer(PROGRAM, test, folder))
