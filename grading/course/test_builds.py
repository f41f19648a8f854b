"""Tests how ./fsdp builds: python3 -m unittest discover grading/course."""

import fcntl
import os
import pathlib
import re
import signal
import subprocess
import unittest

import course_copy
import skeletons
from course_copy import SKELETON


class Everything(unittest.TestCase):
    """Tests that the target `everything` contains every program that the tests in Python run,
    because ./fsdp lint builds only this target before it runs these tests."""

    @unittest.skipUnless(
        (skeletons.ROOT / "build/default/build.ninja").exists(), "nothing is configured"
    )
    def test_the_target_everything_has_all_programs_that_python_tests_run(self):
        needed = {name for path in (skeletons.ROOT / "grading").rglob("test_*.py")
                  for name in re.findall(r'ROOT / "build/default/bin/(\w+)"', path.read_text())}
        self.assertGreaterEqual(needed, {"plan", "own_training"})
        build = skeletons.ROOT / "build/default"
        listed = subprocess.run(
            ["ninja", "-C", build, "-t", "query", "CMakeFiles/everything"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        self.assertEqual(needed - set(re.findall(r"bin/(\w+)", listed)), set())


class Build(course_copy.CourseCopy):
    def test_a_changed_file_with_an_old_modification_time_is_touched_before_a_build(self):
        (self.root / "build").mkdir()
        for text, is_touched in (
            ("// first\n", False),
            ("// of a backup\n", True),
            ("// of a backup\n", False),
        ):
            (self.root / SKELETON).write_text(text)
            os.utime(self.root / SKELETON, (1_600_000_000, 1_600_000_000))
            self.run_function("stacks", "touch_old_files build")
            self.assertEqual((self.root / SKELETON).stat().st_mtime > 1_600_000_000, is_touched)

    def jobs_and_said(self, megabytes, cores, files):
        """Builds `files` files while the machine seems to have `megabytes` of free memory and
        `cores` cores. Returns the -j that ninja gets, and the lines that the build prints to
        stderr."""
        folder = self.folder_of_build("true")
        (folder / "build.ninja").write_text(
            "rule r\n  command = touch $out\n"
            + "".join(f"build made{number}: r\n" for number in range(files))
            + "build made: phony "
            + " ".join(f"made{number}" for number in range(files))
            + "\n"
        )
        for path in folder.glob("made*"):
            path.unlink()
        before = (
            f"configure() {{ :; }}; nproc() {{ echo {cores}; }}; free_megabytes() {{ echo "
            f"{megabytes}; }};"
            'ninja() { echo "$@" >>build/default/calls; command ninja "$@"; };'
        )
        said = self.build(before).communicate()[1].splitlines()
        calls = (folder / "calls").read_text().splitlines()
        (folder / "calls").unlink()
        return re.search(r"-j (\d+) made$", calls[-1])[1], said

    def test_a_build_runs_at_most_as_many_compilers_as_cores_and_free_memory_allow(self):
        bounded = "because {} MB of memory are free and a compiler takes 1700"
        for megabytes, cores, files, jobs, said in (
            (64000, 8, 9, "8", "9 steps"),
            (3500, 8, 9, "2", "9 steps, 2 at a time, " + bounded.format(3500)),
            (900, 2, 3, "1", "3 steps, 1 at a time, " + bounded.format(900)),
            (900, 1, 2, "1", "2 steps"),
            (3500, 8, 1, "2", "1 step"),
        ):
            self.assertEqual(self.jobs_and_said(megabytes, cores, files),
                             (jobs, [f"fsdp: building made in build/default: {said}"]))

    def test_a_build_prints_the_number_of_its_warnings_and_the_first_warning(self):
        one = f"{self.root}/common/nn/module.h:7:1: warning: unused variable 'a'"
        for lines, said in (
            (
                [one, one],
                f"1 warning in build/default/build.log; first: {one.removeprefix(f'{self.root}/')}",
            ),
            (
                [one, f"{self.root}/{SKELETON}:9:3: warning: unused variable 'b'"],
                f"2 warnings in build/default/build.log; first: {SKELETON}:9:3: warning: unused "
                f"variable 'b'",
            ),
            ([], None),
        ):
            folder = self.folder_of_build("cat printed; touch made")
            (folder / "made").unlink(missing_ok=True)
            (folder / "printed").write_text("\n".join(lines))
            printed = self.build(before="configure() { :; };").communicate()[1].splitlines()
            self.assertEqual(printed[1:], [f"fsdp: {said}"] if said else [])

    def build_while_another_holds_the_lock(self, rule, process=""):
        """Builds while this test holds the lock of the build folder. Returns the line with which
        the build says that it waits; "" if the build does not wait. `process`: the id of the
        process that holds the lock, as the lock file names it."""
        folder = self.folder_of_build(rule)
        subprocess.run(["ninja", "-C", folder, "made"], check=True, capture_output=True)
        with open(folder / "lock", "w") as lock:
            print(process, file=lock, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = self.build()
            first = waiting.stderr.readline()  # "" if the script ends without this message
            if first:
                os.killpg(waiting.pid, signal.SIGKILL)
            waiting.communicate()
        return first

    def test_a_build_of_an_up_to_date_target_does_not_wait_for_another_build(self):
        self.assertEqual(self.build_while_another_holds_the_lock("touch made"), "")

    def test_a_build_that_waits_for_another_build_prints_the_process_of_that_build(self):
        process = os.getpid()
        words = (
            pathlib.Path(f"/proc/{process}/cmdline")
            .read_bytes()
            .decode()
            .replace("\0", " ")
            .rstrip(" ")
        )
        for known, which in (("", ""), (process, f" (process {process}: {words})")):
            # The rule `true` makes no file, so the target is never up to date.
            said = self.build_while_another_holds_the_lock("true", known)
            self.assertEqual(said, f"fsdp: waiting for another build to end{which}\n")

    def test_a_build_that_sigint_ends_prints_interrupted_and_not_failed(self):
        started = self.root / "started"
        os.mkfifo(started)
        # The rule's trap ends its shell at SIGINT. Without the trap, the shell would not end at the
        # signal while it waits for a program.
        self.folder_of_build(
            f"trap 'kill $$!; exit 130' INT; echo >'{started}'; sleep 1000 & wait")
        build = self.build(before="configure() { :; };")
        started.read_text()  # waits until the rule runs
        os.killpg(build.pid, signal.SIGINT)
        said = build.communicate()[1]
        self.assertEqual(
            (build.returncode, said.splitlines()[-1]), (-signal.SIGINT, "fsdp: interrupted"), said
        )
        self.assertNotIn("failed", said)

    def read_only_build(self, rule):
        """Builds a target in a copy of the course. The whole copy, self.root with its build folder,
        is mounted read-only, so that not even root can write in it. Returns the build's exit status
        and what the build prints to stderr."""
        folder = self.folder_of_build(rule)
        subprocess.run(["ninja", "-C", folder, "made"], check=True, capture_output=True)
        mount = (
            f'mount --bind "{self.root}" "{self.root}" && mount -o remount,bind,ro "{self.root}" '
            f'&& cd "{self.root}" && '
        )
        build = self.build(within=("unshare", "-m", "bash", "-c", mount + 'exec bash -c "$0"'))
        _, said = build.communicate()
        if "unshare" in said or "mount" in said:
            self.skipTest("this user may not mount")
        return build.returncode, said

    def test_a_build_of_an_up_to_date_target_succeeds_in_a_read_only_folder(self):
        self.assertEqual(self.read_only_build("touch made"), (0, ""))

    def test_a_build_of_an_outdated_target_in_a_read_only_folder_fails_and_prints_the_cause(self):
        status, said = self.read_only_build("true")
        self.assertEqual(status, 1)
        self.assertIn("fsdp: build/default can't be written, and does not hold made", said)
