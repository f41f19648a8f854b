"""Tests how .ci/run combines ./fsdp test and ./fsdp lint: python3 -m unittest discover
grading/course."""

import shutil
import subprocess

import course_copy
import skeletons


class Run(course_copy.CourseCopy):
    def run_with(self, test, lint, *options):
        """Runs .ci/run with the scripts `test` and `lint` in the place of ./fsdp test and ./fsdp
        lint. Returns its exit status and the lines that it prints."""
        shutil.copytree(skeletons.ROOT / ".ci", self.root / ".ci", dirs_exist_ok=True)
        for verb, script in (("test", test), ("lint", lint)):
            path = self.root / f"scripts/verbs/{verb}.sh"
            path.write_text(f"#!/bin/bash\n{script}\n")
            path.chmod(0o755)
        done = subprocess.run([self.root / ".ci/run", *options], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    def test_ci_run_prints_only_one_total_the_sum_of_test_and_lint_as_its_last_line(self):
        status, lines = self.run_with(
            "echo '== a'; echo '3 passed, 0 failed, 1 skipped'",
            'echo "format $*"; echo "20 passed, 0 failed, 0 skipped"',
            "--all",
        )
        self.assertEqual(
            (status, lines), (0, ["== a", "format --all", "23 passed, 0 failed, 1 skipped"])
        )

    def test_ci_run_fails_if_either_test_or_lint_fails(self):
        good, bad = (
            "echo '3 passed, 0 failed, 0 skipped'",
            "echo '2 passed, 1 failed, 0 skipped'; exit 1",
        )
        for verbs in ((good, bad), (bad, good), (good, bad.replace("exit 1", "")),
                      (good, "echo '2 passed, 0 failed, 0 skipped'; exit 1")):
            self.assertEqual(self.run_with(*verbs), (1, ["5 passed, 1 failed, 0 skipped"]), verbs)

    def test_ci_run_counts_fsdp_test_without_a_total_as_one_failure_and_still_runs_fsdp_lint(self):
        self.assertEqual(
            self.run_with("echo broken; exit 1", "echo '2 passed, 0 failed, 0 skipped'"),
            (1, ["broken", "./fsdp test broke off", "2 passed, 1 failed, 0 skipped"]),
        )
