"""Tests the sandbox of graded code: what the code can't do in it, and which processes end with
it."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

from grader import compiling, course, run, sandbox, session, whole_file

MODES = [mode for mode in ("namespaces", "user", "limits")
         if mode == "limits" or sandbox.works(["/bin/sh", "-c", sandbox.TRIES_TO_BREAK_OUT], mode)
         and (mode != "user" or os.geteuid() == 0)]
AS_ROOT = unittest.skipIf(os.geteuid() != 0, "only root changes the user")
FOREIGN = 61_150  # a user id that systemd and directory services use


def text_of(path):
    """Returns the text of a file of /proc; "" if the process has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def wait_while(true):
    """Calls true() repeatedly until it returns false, for at most PATIENCE seconds."""
    deadline = time.monotonic() + session.PATIENCE
    while true() and time.monotonic() < deadline:
        time.sleep(0.01)


def is_running(number):
    return text_of(pathlib.Path(f"/proc/{number}/stat")).rpartition(") ")[2][:1] not in ("", "Z")


class InEveryMode(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.script = pathlib.Path(folder.name) / "run"

    def sandboxed(self, words, mode, **how):
        """Runs the words in a sandbox of this mode. Returns the exit status and the output."""
        return run.run(
            [sandbox.make(self.script, sandbox.limits_of_runs(), mode=mode, **how), *words],
            None,
            60,
        )

    def for_each(self, *which):
        for mode in MODES:
            if not which or mode in which:
                with self.subTest(mode=mode):
                    yield mode

    def test_graded_code_runs_with_oom_score_adj_1000_so_the_kernel_kills_it_first(self):
        for mode in self.for_each():
            self.assertEqual(
                self.sandboxed(["/bin/cat", "/proc/self/oom_score_adj"], mode), (0, "1000\n")
            )

    def test_the_sandbox_refuses_system_calls_that_no_computation_needs(self):
        if not sandbox.filters_calls():
            self.skipTest("there is no libseccomp, or the kernel filters no calls")
        tries = "setsid true; unshare --user true && exit 1; exit 0"
        for mode in self.for_each():
            status, printed = self.sandboxed(["/bin/sh", "-c", tries], mode)
            self.assertEqual(status, 0)
            self.assertIn("setsid: setsid failed: Operation not permitted", printed)

    @AS_ROOT
    def test_graded_code_runs_under_an_unused_user_id_and_without_other_groups(self):
        for mode in self.for_each("namespaces", "user"):
            user, group = self.sandboxed(["/bin/sh", "-c", "id -u; id -G"], mode)[1].split()
            self.assertEqual((int(user) in sandbox.USERS, user), (True, group))

    @AS_ROOT
    def test_processes_of_other_users_continue_while_and_after_graded_code_runs(self):
        foreign = subprocess.Popen(
            ["setpriv", "--reuid", str(FOREIGN), "--clear-groups", "sleep", "603"],
            start_new_session=True,
        )
        try:
            for mode in self.for_each():
                self.sandboxed(["/bin/true"], mode)
                self.assertIsNone(foreign.poll())
            while not sandbox.has_processes(FOREIGN):
                time.sleep(0.01)
            self.assertFalse(sandbox.is_free(FOREIGN))
        finally:
            foreign.kill()
            foreign.wait()
        self.assertFalse(sandbox.is_free(0))
        self.assertTrue(sandbox.is_free(sandbox.free_user()))

    def test_all_processes_that_graded_code_has_started_end_with_its_session(self):
        for mode in self.for_each():
            script = sandbox.make(self.script, sandbox.limits_of_runs(), mode=mode)
            words = ["/bin/bash", "-mc", "sleep 604 & sleep 604 & wait"]
            process = subprocess.Popen(
                [script, *words], start_new_session=True, stderr=subprocess.DEVNULL
            )
            while len(self.sleeping("604")) < 2:
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            self.assertTrue(session.end(process))
            process.wait()
            wait_while(lambda: self.sleeping("604"))
            self.assertEqual(self.sleeping("604"), [])

    def sleeping(self, seconds):
        return [path.parent.name for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                if text_of(path) == f"sleep\0{seconds}\0"]

    def test_the_output_of_graded_code_is_limited_in_size(self):
        limits = {**course.rubric()["limits"], "file_bytes": 100_000}
        with mock.patch.object(sandbox, "rubric", lambda: {"limits": limits}):
            for mode in self.for_each():
                status, printed = self.sandboxed(["/bin/sh", "-c", "exec yes"], mode)
                self.assertNotIn(status, (0, None))
                self.assertLessEqual(len(printed), 110_000)

    def test_graded_code_can_write_only_to_scratch_folders_which_are_limited_in_size(self):
        for mode in self.for_each("namespaces"):
            fills = (
                "for i in 1 2 3; do for d in /tmp /dev/shm; do head -c 50000000 /dev/zero > "
                "$d/fill$i; done; done;"
                "du -cm /tmp /dev/shm | tail -n 1; touch /x /dev/x /usr/x"
            )
            _, printed = self.sandboxed(
                ["/bin/sh", "-c", f"({fills}) 2> /dev/null; ls /x /dev/x /usr/x"], mode
            )
            self.assertLessEqual(int(printed.split()[0]), 129)
            self.assertEqual(printed.count("cannot access"), 3)

    def test_graded_code_sees_only_the_files_that_the_sandbox_shows(self):
        shown = course.ROOT / "common"
        for mode in self.for_each("namespaces"):
            for path, seen in (
                (shown, True),
                (course.ROOT / "solutions", False),
                (course.ROOT / "grading", False),
                ("/etc/passwd", False),
                (f"/proc/1/root{course.ROOT}/grading", False),
                ("/dev/kmsg", False),
            ):
                status, _ = self.sandboxed(["/usr/bin/test", "-e", path], mode, seen=[shown])
                self.assertEqual(status == 0, seen, path)

    @AS_ROOT
    def test_only_a_sandbox_for_linking_can_read_files_that_other_users_may_not_read(self):
        with tempfile.TemporaryDirectory() as closed:
            (pathlib.Path(closed) / "tests.o").write_text("secret")
            for mode in self.for_each("namespaces", "user"):
                for as_grader in (False, True):
                    status, _ = self.sandboxed(
                        ["/bin/cat", f"{closed}/tests.o"], mode, seen=[closed], as_grader=as_grader
                    )
                    self.assertEqual(status == 0, as_grader)

    def test_a_sandbox_with_namespaces_has_no_network_but_loopback(self):
        for mode in self.for_each("namespaces"):
            _, printed = self.sandboxed(["/bin/cat", "/proc/net/dev"], mode)
            self.assertEqual(
                [line.split(":")[0].strip() for line in printed.splitlines()[2:]], ["lo"]
            )


class Compilers(unittest.TestCase):
    def test_the_sandbox_of_compilers_shows_headers_but_no_solution_and_no_test(self):
        if (
            sandbox.best_mode() != "namespaces"
            or not (course.BUILD / "compile_commands.json").exists()
        ):
            self.skipTest("this machine has no namespaces, or nothing is built")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            script = sandbox.make(
                f"{folder}/run", sandbox.limits_of_compilers(), compiling.read_by_compilers()
            )
            for path, seen in (
                ("common/comm/call.h", True),
                ("solutions", False),
                ("tests", False),
                ("grading", False),
                (".grades", False),
                ("build/default/bin", False),
                ("build/default/build.ninja", False),
                ("/dev/null", True),
                ("/dev/ptmx", False),
                ("/dev/fd", False),
                ("/proc/self", False),
            ):
                status, _ = run.run([script, "/usr/bin/test", "-e", course.ROOT / path], None, 60)
                self.assertEqual(status == 0, seen, path)


class Trial(unittest.TestCase):
    def test_if_the_test_program_does_not_start_the_error_names_the_unreadable_folder(self):
        with tempfile.TemporaryDirectory() as folder:  # only root or its owner may enter it
            program = pathlib.Path(folder) / "tests"
            program.write_text("no program")
            program.chmod(0o755)
            kept = pathlib.Path(folder) / "kept"
            kept.mkdir()
            with (
                self.assertRaises(course.Refused) as caught,
                mock.patch.object(sandbox, "KEPT", kept),
            ):
                sandbox.require_that_tests_run(program)
        self.assertIn(f"other users may not enter {folder}", str(caught.exception))


class Running(unittest.TestCase):
    def test_run_returns_the_status_and_the_output_and_ends_a_command_that_takes_too_long(self):
        self.assertEqual(run.run(["sh", "-c", "echo b >&2; echo a; exit 3"], {}, 60), (3, "b\na\n"))
        self.assertIsNone(run.run(["sh", "-c", "sleep 605 & wait"], {}, 0.1)[0])
        self.assertEqual(InEveryMode.sleeping(self, "605"), [])

    def test_the_usual_tests_get_no_seed_even_if_the_shell_has_set_fsdp_test_seed(self):
        given = []
        with (
            mock.patch.object(
                run, "run", lambda command, environment, *_: given.append(environment) or (1, "")
            ),
            mock.patch.object(run, "sandboxed", lambda path, script: script),
            mock.patch.dict(os.environ, FSDP_TEST_SEED="of the shell"),
        ):
            for seed in ("", "drawn"):
                run.run_tests(pathlib.Path("tests"), course.tasks()[2], seed)
        self.assertEqual(
            [environment.get("FSDP_TEST_SEED") for environment in given], [None, "drawn"]
        )

    def test_a_command_that_the_grader_runs_ends_if_the_grader_is_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            told = pathlib.Path(folder) / "number"
            command = ["sh", "-c", f"echo $$ > {told}; exec sleep 606"]
            code = f"from grader import run; run.run({command}, {{}}, 600)"
            grader = subprocess.Popen([sys.executable, "-c", code], cwd=course.ROOT / "grading")
            while not text_of(told).endswith("\n"):
                time.sleep(0.01)
            grader.send_signal(signal.SIGKILL)
            grader.wait()
            number = text_of(told).strip()
            wait_while(lambda: is_running(number))
        self.assertFalse(is_running(number))


class Files(unittest.TestCase):
    def test_several_threads_can_write_one_file_with_any_characters_and_it_stays_whole(self):
        with (
            tempfile.TemporaryDirectory() as folder,
            concurrent.futures.ThreadPoolExecutor(4) as pool,
        ):
            path = pathlib.Path(folder) / "page"
            list(pool.map(lambda _: whole_file.write(path, "m\udcfcll"), range(2000)))
            self.assertEqual(([*path.parent.iterdir()], path.read_text()), ([path], "m\\udcfcll"))
