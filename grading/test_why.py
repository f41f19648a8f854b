"""Tests ./fsdp why: on faults it names the line, and on the reference solution it says that
nothing is wrong. Skipped if bin/why is not built, or if this machine cannot watch a
process."""

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


def environment_of(command):
    """Returns the variables and the arguments in the file `command` of a recording."""
    words = iter(command.read_bytes().decode().split("\0")[2:])
    variables = dict(word.split("=", 1) for word in iter(lambda: next(words), ""))
    return variables, [word for word in words if word]


def answer(program, test, folder):
    """Runs a test with a recording, and returns what why says about it."""
    recording = pathlib.Path(folder, "recording")
    subprocess.run(
        [program, f"--gtest_filter={test}/W2"], cwd=folder, capture_output=True,
        env={**os.environ, "FSDP_RECORD": recording},
    )
    chosen = subprocess.run([WHY, "--choose", recording], capture_output=True, text=True)
    if chosen.returncode:
        return chosen.stderr
    of_test, rank, run = chosen.stdout.split()
    variables, arguments = environment_of(pathlib.Path(of_test, "command"))
    variables.pop("FSDP_RECORD")
    replay = {"FSDP_REPLAY": f"{of_test}/{run}/rank-{rank}", "FSDP_ROOT": str(ROOT)}
    done = subprocess.run(
        [WHY, of_test, program, *arguments], capture_output=True, text=True,
        env={**os.environ, **variables, **replay},
    )
    return done.stdout + done.stderr


# One fault for each way in which why finds a line: the test that sees it, the function and the text
# of the line that why names first.
FAULTS = {
    # The value has been computed from a wrong one. why follows it back through the operators and
    # the collective, to where a right element was written and the wrong one was not.
    "computed_from_a_wrong_value": {
        "task": 2,
        "file": "flat_parameter.cpp",
        "old": "  if (!gaps.empty()) at::_foreach_zero_(gaps);",
        "new": "",
        "test": "T2_5_flat_gradient."
        "a_gradient_is_flattened_in_row_major_order_whatever_its_strides",
        "named": "FlatParameterImpl::flatten_gradients\n      if (!places.empty())",
    },
    # No line wrote the value, because a condition passed over the code that does.
    "passed_over": {
        "task": 0,
        "file": "ddp.cpp",
        "old": "    if (!parameter.requires_grad()) continue;",
        "new": "    if (parameter.requires_grad()) continue;",
        "test": "T0_1_all_reduce.a_gradient_that_is_not_contiguous_is_averaged_too",
        "named": "all_reduce_gradients\n      if (!parameter.requires_grad()) continue;",
    },
    # The value is in a collective for which no line has waited.
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


def answer_to(fault):
    """Returns what why says about the test of a fault."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "tests")
        changed.build(fault["task"], fault, program)
        return answer(program, fault["test"], folder)


@unittest.skipUnless(WHY.exists() and PROGRAM.exists(), "./fsdp build why reference_task2_tests")
class Why(unittest.TestCase):
    def test_the_line_that_writes_the_wrong_number_is_named(self):
        name = "second_pass_replaces_the_first"
        said = answer_to(next(one for one in faults.load(2) if one["name"] == name))
        if "ptrace" in said or "x86-64" in said:
            self.skipTest(said)
        self.assertIn("FlatParameterImpl::wait_for_reduction\n", said)
        self.assertIn("solutions/task2_flat_parameter/flat_parameter.cpp:", said)

    def test_of_each_kind_of_fault_the_function_is_named_first(self):
        for name, fault in FAULTS.items():
            if not (BUILD / "bin" / f"reference_task{fault['task']}_tests").exists():
                continue
            with self.subTest(name):
                said = answer_to({"name": name, **fault})
                if "ptrace" in said or "x86-64" in said:
                    self.skipTest(said)
                first = re.search(r"^  \S+:\d+, in (.*\n.*\n)", said, re.MULTILINE)
                self.assertIsNotNone(first, said)
                self.assertTrue(first[1].startswith(fault["named"]), said)

    def test_without_a_failed_test_it_says_that_there_is_none(self):
        test = "T2_5_flat_gradient.the_sharded_gradient_is_the_mean_over_ranks"
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("no failed test", answer(PROGRAM, test, folder))
