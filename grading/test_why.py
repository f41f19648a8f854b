"""Tests ./fsdp why: on a fault of the bank it names the line, and on the reference solution it
says that nothing is wrong. Skipped if bin/why is not built, or if this machine cannot watch a
process."""

import os
import pathlib
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


@unittest.skipUnless(WHY.exists() and PROGRAM.exists(), "./fsdp build why reference_task2_tests")
class Why(unittest.TestCase):
    def test_the_line_that_writes_the_wrong_number_is_named(self):
        name = "second_pass_replaces_the_first"
        fault = next(one for one in faults.load(2) if one["name"] == name)
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "tests")
            changed.build(2, fault, program)
            said = answer(program, fault["test"], folder)
        if "ptrace" in said or "x86-64" in said:
            self.skipTest(said)
        self.assertIn("FlatParameterImpl::wait_for_reduction\n", said)
        self.assertIn("solutions/task2_flat_parameter/flat_parameter.cpp:", said)

    def test_without_a_failed_test_it_says_that_there_is_none(self):
        test = "T2_5_flat_gradient.the_sharded_gradient_is_the_mean_over_ranks"
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("no failed test", answer(PROGRAM, test, folder))
