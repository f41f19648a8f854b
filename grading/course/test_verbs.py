"""The verbs that students use: python3 -m unittest discover grading."""

import fcntl
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import skeletons

SKELETON = "tasks/task3_forward_hooks/forward_hooks.cpp"
EXTENSION = "tasks/extensions/task5_sharded_optimizer/locate.cpp"


class Verbs(unittest.TestCase):
    """Each in a copy of its own that holds what the verbs read."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a course ")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("scripts", "tasks", "solutions", "programs"):
            shutil.copytree(skeletons.ROOT / name, self.root / name)
        for name, content in skeletons.delivered().items():
            path = self.root / ".pristine" / name.removeprefix("tasks/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (self.root / "grading/course").mkdir(parents=True)
        for name in ("fsdp", "course.toml", "grading/course/skeletons.py"):
            shutil.copy(skeletons.ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to(skeletons.ROOT / ".venv")

    def run_verb(self, *arguments):
        command = [self.root / "fsdp", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_hint_tells_one_level_and_where_the_next_is(self):
        hints = (self.root / "tasks/task3_forward_hooks/HINTS.md").read_text()
        for level in ("1", "2", "3"):
            status, text = self.run_verb("hint", "3.2", level)
            self.assertEqual((status, text.splitlines()[0] in hints, "More: ./fsdp hint 3.2" in text), (0, True, level != "3"))
        self.assertEqual(self.run_verb("hint", "3.2"), self.run_verb("hint", "3.2", "1"))
        for arguments, refused in (((), 2), (("3",), 2), (("8.1",), 2), (("3.2", "4"), 2), (("3.9",), 1)):
            self.assertEqual(self.run_verb("hint", *arguments)[0], refused, arguments)

    def test_reset_gives_the_first_state_back_and_keeps_what_was_there(self):
        files = {SKELETON: "forward_hooks.cpp", EXTENSION: "extensions/locate.cpp", SKELETON.replace("forward_hooks.cpp", "own.h"): "own.h"}
        first = {name: (self.root / name).read_text() for name in (SKELETON, EXTENSION)}
        for number, task, folder in ((1, "3", "task3_forward_hooks"), (2, "3", "task3_forward_hooks"),
                                     (1, "5", "task5_sharded_optimizer")):
            mine = [name for name in files if folder in name]
            for name in mine:
                (self.root / name).write_text(f"// mine, {number}\n")
            status, text = self.run_verb("reset", task)
            self.assertEqual((status, f"kept in .backup/{folder}-{number}" in text), (0, True), text)
            for name in mine:
                kept = self.root / f".backup/{folder}-{number}" / files[name]
                self.assertEqual(kept.read_text(), f"// mine, {number}\n")
                self.assertEqual((self.root / name).read_text(), first.get(name, f"// mine, {number}\n"))

    def test_reset_leaves_alone_what_is_as_at_first(self):
        status, text = self.run_verb("reset", "3")
        self.assertEqual((status, "nothing to do" in text, (self.root / ".backup").exists()), (0, True, False), text)
        self.assertEqual(self.run_verb("reset", "9")[0], 2)

    def run_function(self, name, script):
        """The script, which may call this function of ./fsdp."""
        begin = f"root={str(self.root)!r}; source scripts/build.sh; eval \"$(sed -n '/^{name}()/,/^}}/p' fsdp)\"; "
        return subprocess.run(["bash", "-c", begin + script], cwd=self.root, capture_output=True, text=True)

    def test_a_task_that_is_as_delivered_is_not_built(self):
        for name in (SKELETON, EXTENSION):
            (self.root / name).write_text((self.root / name).read_text() + "\n")
        done = self.run_function("is_blank", "for task in 3 4 5; do is_blank $task && echo blank $task; done")
        self.assertEqual(done.stdout, "blank 4\n", done.stderr)

    def test_a_file_that_comes_back_with_an_old_time_is_as_new_for_ninja(self):
        (self.root / "build").mkdir()
        for text, is_touched in (("// first\n", False), ("// of a backup\n", True), ("// of a backup\n", False)):
            (self.root / SKELETON).write_text(text)
            os.utime(self.root / SKELETON, (1_600_000_000, 1_600_000_000))
            self.run_function("is_blank", "touch_old_files build")
            self.assertEqual((self.root / SKELETON).stat().st_mtime > 1_600_000_000, is_touched)

    def test_check_says_what_the_grader_would_reject(self):
        for name, code in ((SKELETON, "#include <unistd.h>\nvoid f() { fork(); }"),
                           (EXTENSION, "#include <unistd.h>\nvoid f() { write(3, \"\", 1); }"),
                           ("tasks/task6_prefetch/prefetch.cpp", "#include <cstdio>\nvoid f() { std::puts(\"\"); }")):
            task = re.search(r"task\d", name)[0]
            made = self.root / f"build/default/CMakeFiles/mine_{task}.dir/{name}.o"
            made.parent.mkdir(parents=True)
            subprocess.run(["c++", "-c", "-x", "c++", "-", "-o", made], input=code, text=True, check=True)
        done = self.run_function("look", "set -euo pipefail; for i in 3 5 6; do look $i mine && echo good $i; done")
        self.assertEqual(done.stdout, "good 5\ngood 6\n", done.stderr)
        for line, said in zip(done.stderr.splitlines(), (f"{SKELETON} uses fork: a solution starts", f"{EXTENSION} uses write",
                                                         "task 5 would be graded without its extensions"), strict=True):
            self.assertIn(said, line)

    def test_check_refuses_an_unknown_problem_before_it_builds(self):
        for arguments in (["12"], ["8"], ["3.22"], ["3.9"], ["0"], ["all"], ["--world", "2", "3.9"],
                          ["--solutions", "9"], ["--base=mine", "--repeat", "2", "0"]):
            status, text = self.run_verb("check", *arguments)
            self.assertEqual(status, 2, text)
            self.assertIn(f"there is no task or problem '{arguments[-1]}'", text)
        self.assertFalse((self.root / "build").exists())

    def test_check_says_of_a_build_that_cannot_be_configured_only_why(self):
        (self.root / "scripts/setup.sh").write_text("echo 'fsdp: please install these packages: g++' >&2; exit 1\n")
        (self.root / SKELETON).write_text("// mine\n")
        for task in ("", "3"):
            status, text = self.run_verb("check", *task)
            self.assertEqual((status, text.splitlines()[-1]), (1, "fsdp: please install these packages: g++"), text)

    def test_install_refuses_what_is_no_prefix_before_it_builds(self):
        (self.root / "file").write_text("")
        prefix, one = str(self.root / "prefix"), "install wants one folder: the PREFIX to install into"
        for arguments, reason in (
            ((), one), ((prefix, prefix), one), (("",), one),
            (("/proc/prefix",), "install: '/proc/prefix' is no folder that can be written; name another one"),
            ((f"{self.root}/file",), f"install: '{self.root}/file' is no folder that can be written; name another one"),
            (("--prefix", prefix), "option '--prefix' is unknown to install; allowed: --preset NAME"),
            (("--preset", "fast", prefix), "--preset 'fast' is unknown; allowed: default, debug, cuda, asan, tsan"),
            (("--preset", "asan", prefix), "install: --preset asan is only for tests; allowed: default, debug, cuda"),
        ):
            self.assertEqual(self.run_verb("install", *arguments), (2, f"fsdp: {reason}\n"))
        self.assertFalse((self.root / "build").exists())

    @unittest.skipIf(pathlib.Path("/dev/nvidia0").exists(), "this machine has a GPU")
    def test_device_cuda_without_a_gpu_is_refused_before_anything_is_built(self):
        status, text = self.run_verb("train", "--device", "cuda", "--mode", "fsdp")
        self.assertEqual(status, 2, text)
        self.assertIn("--device cuda needs an NVIDIA GPU", text)
        self.assertFalse((self.root / "build").exists())

    def folder_of_build(self, rule):
        """Whose one target is made by `rule`."""
        folder = self.root / "build/default"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "build.ninja").write_text(f"rule r\n  command = {rule}\nbuild made: r\n")
        return folder

    def build(self, before="", within=("bash", "-c")):
        script = f"root={str(self.root)!r}; source scripts/build.sh; {before} build default made; exit $?"
        return subprocess.Popen([*within, script], cwd=self.root, text=True, start_new_session=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def jobs_and_said(self, megabytes, cores, files):
        """The -j of a build of so many files on such a machine, and the first line that it prints."""
        folder = self.folder_of_build("true")
        (folder / "build.ninja").write_text("rule r\n  command = touch $out\n" + "".join(
            f"build made{number}: r\n" for number in range(files)) + "build made: phony " + " ".join(
            f"made{number}" for number in range(files)) + "\n")
        for path in folder.glob("made*"):
            path.unlink()
        before = (f"configure() {{ :; }}; nproc() {{ echo {cores}; }}; free_megabytes() {{ echo {megabytes}; }};"
                  'ninja() { echo "$@" >>build/default/calls; command ninja "$@"; };')
        said = self.build(before).communicate()[1].splitlines()
        calls = (folder / "calls").read_text().splitlines()
        (folder / "calls").unlink()
        return re.search(r"-j (\d+) made$", calls[-1])[1], said

    def test_a_build_runs_as_many_compilers_as_memory_has_room_for(self):
        bounded = "because {} MB of memory are free and a compiler takes 1300"
        for megabytes, cores, files, jobs, said in (
                (64000, 8, 9, "8", "9 steps"), (2700, 8, 9, "2", "9 steps, 2 at a time, " + bounded.format(2700)),
                (900, 2, 3, "1", "3 steps, 1 at a time, " + bounded.format(900)), (900, 1, 2, "1", "2 steps"),
                (2700, 8, 1, "2", "1 step")):
            self.assertEqual(self.jobs_and_said(megabytes, cores, files),
                             (jobs, [f"fsdp: building made in build/default: {said}"]))

    def test_a_build_shows_its_first_warning(self):
        one = f"{self.root}/common/nn/module.h:7:1: warning: unused variable 'a'"
        for lines, said in (
                ([one, one], f"1 warning in build/default/build.log; first: {one.removeprefix(f'{self.root}/')}"),
                ([one, f"{self.root}/{SKELETON}:9:3: warning: unused variable 'b'"],
                 f"2 warnings in build/default/build.log; first: {SKELETON}:9:3: warning: unused variable 'b'"),
                ([], None)):
            folder = self.folder_of_build("cat printed; touch made")
            (folder / "made").unlink(missing_ok=True)
            (folder / "printed").write_text("\n".join(lines))
            printed = self.build(before="configure() { :; };").communicate()[1].splitlines()
            self.assertEqual(printed[1:], [f"fsdp: {said}"] if said else [])

    def build_while_another_holds_the_lock(self, rule, process=""):
        """The first line that it prints; "" if it does not wait."""
        folder = self.folder_of_build(rule)
        subprocess.run(["ninja", "-C", folder, "made"], check=True, capture_output=True)
        with open(folder / "lock", "w") as lock:
            print(process, file=lock, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = self.build()
            first = waiting.stderr.readline()  # ends with the script, or says that it waits
            if first:
                os.killpg(waiting.pid, signal.SIGKILL)
            waiting.communicate()
        return first

    def test_what_is_current_does_not_wait_for_another_build(self):
        self.assertEqual(self.build_while_another_holds_the_lock("touch made"), "")

    def test_who_waits_for_another_build_says_for_which(self):
        process = os.getpid()
        words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode().replace("\0", " ").rstrip(" ")
        for known, which in (("", ""), (process, f" (process {process}: {words})")):
            said = self.build_while_another_holds_the_lock("true", known)  # makes nothing, so it is never current
            self.assertEqual(said, f"fsdp: waiting for another build to end{which}\n")

    def test_an_interrupted_build_is_not_called_failed(self):
        started = self.root / "started"
        os.mkfifo(started)
        # The trap also counts where a shell that waits for a program would not end by the signal.
        self.folder_of_build(
            f"trap 'kill $$!; exit 130' INT; echo >'{started}'; sleep 1000 & wait")
        build = self.build(before="configure() { :; };")
        started.read_text()  # waits until the rule runs
        os.killpg(build.pid, signal.SIGINT)
        said = build.communicate()[1]
        self.assertEqual((build.returncode, said.splitlines()[-1]), (-signal.SIGINT, "fsdp: interrupted"), said)
        self.assertNotIn("failed", said)

    def read_only_build(self, rule):
        """In a folder in which nothing can be written, even by root."""
        folder = self.folder_of_build(rule)
        subprocess.run(["ninja", "-C", folder, "made"], check=True, capture_output=True)
        mount = f'mount --bind "{self.root}" "{self.root}" && mount -o remount,bind,ro "{self.root}" && cd "{self.root}" && '
        build = self.build(within=("unshare", "-m", "bash", "-c", mount + 'exec bash -c "$0"'))
        _, said = build.communicate()
        if "unshare" in said or "mount" in said:
            self.skipTest("this user may not mount")
        return build.returncode, said

    def test_what_is_current_needs_no_folder_that_can_be_written(self):
        self.assertEqual(self.read_only_build("touch made"), (0, ""))

    def test_what_is_not_current_needs_a_folder_that_can_be_written(self):
        status, said = self.read_only_build("true")
        self.assertEqual(status, 1)
        self.assertIn("fsdp: build/default can't be written, and does not hold made", said)

    def test_a_verb_that_needs_python_makes_its_environment_first(self):
        shutil.copytree(skeletons.ROOT / "grading", self.root / "grading", dirs_exist_ok=True)
        for verb in ("handout", "grade", "gradescope"):
            (self.root / ".venv").rename(self.root / f"before {verb}")
            status, text = self.run_verb(verb, "--help")
            self.assertEqual(status, 0, text)
            self.assertTrue((self.root / ".venv/bin/python3").exists())

    def test_libtorch_is_found_by_each_folder_that_names_it(self):
        torch = self.root / "wheel/torch"
        for header, text in (("headeronly/version.h", "#define TORCH_VERSION_MAJOR 2\n"),
                             ("csrc/api/include/torch/torch.h", "")):
            path = torch / "include/torch" / header
            path.parent.mkdir(parents=True)
            path.write_text(text)
        prefix = torch / "share/cmake"  # torch.utils.cmake_prefix_path
        for name, folder in (("CMAKE_PREFIX_PATH", prefix), ("CMAKE_PREFIX_PATH", torch), ("LIBTORCH", torch),
                             ("CMAKE_PREFIX_PATH", torch.parent), ("Torch_DIR", prefix / "Torch")):
            done = subprocess.run(["cmake", "-P", skeletons.ROOT / "cmake/missing.cmake"], capture_output=True,
                                  text=True, env={**os.environ, name: str(folder)})
            found = done.stdout.partition("libtorch ")[2].strip()
            self.assertEqual(pathlib.Path(found), torch, f"{name}={folder}")

    def test_help_has_the_verbs_of_this_copy(self):
        maintain = self.root / "scripts/maintain.txt"
        self.assertEqual(self.run_verb("help", "--maintain"), (0, maintain.read_text()))
        for path in (maintain, self.root / "grading/course/skeletons.py"):
            path.unlink()
        text = self.run_verb("help")[1]
        for words, shown in (("  hint PROBLEM", True), ("  handout OUT", False), ("--maintain", False)):
            self.assertEqual(words in text, shown, words)
        status, text = self.run_verb("handout", "x.tar.gz")
        self.assertEqual((status, "unknown verb 'handout'" in text), (2, True), text)


def fsdp(*arguments):
    """Of this repository. What it prints, as bytes."""
    return subprocess.run([skeletons.ROOT / "fsdp", *arguments], capture_output=True)


class Hello(unittest.TestCase):
    def test_shows_what_every_rank_has_after_each_collective(self):
        text = fsdp("hello", "--world", "3").stdout.decode()
        everything = ["0 0 0 0 1 1 1 1 2 2 2 2"] * 3
        parts = ["6 6 6 6", "12 12 12 12", "18 18 18 18"]
        self.assertEqual(re.findall(r"has  \[(.*)\]", text), everything + parts + [" ".join(parts)] * 3)
        self.assertEqual(re.findall(r"received (\d+) bytes", text), ["32", "32", "64"])
        page = " ".join((skeletons.ROOT / "COURSE.md").read_text().split())
        for world in ("2", "8"):
            received = re.findall(r"received (\d+) bytes", fsdp("hello", "--world", world).stdout.decode())
            self.assertIn(f"W = {world}: {', '.join(received)}.", page)

    def test_names_the_rank_and_the_collective_that_it_left_out(self):
        for rank in ("1", "2", "3"):
            done = fsdp("hello", "--skip", rank)
            self.assertEqual(done.returncode, 1)
            cause = f"likely cause: rank {rank} left out reduce_scatter hello, or called all_reduce hello out of turn\n"
            self.assertIn(cause, done.stderr.decode())


class Generate(unittest.TestCase):
    """From two checkpoints of one step each."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        fsdp("generate", "--help")  # builds it, and says so on stderr
        for name, options in (("text", ["--seq", "18"]), ("published", ["--recipe", "published"])):
            fsdp("train", "--model", "gpt2-tiny", "--steps", "1", *options, "--checkpoint-dir", cls.folder / name)

    def test_continues_the_prompt_by_so_many_bytes(self):
        done = fsdp("generate", "--checkpoint", self.folder / "text", "--prompt", "Größe", "--tokens", "30")
        prompt = "Größe".encode()
        self.assertEqual((done.returncode, done.stderr, len(done.stdout)), (0, b"", len(prompt) + 30 + 1))
        self.assertTrue(done.stdout.startswith(prompt) and done.stdout.endswith(b"\n"), done.stdout)

    def test_refuses_in_one_line_what_it_cannot_continue(self):
        out = self.folder / "hf"
        fsdp("export", "--format", "hf", "--checkpoint", self.folder / "published", "--output", out)
        text, published = (["--checkpoint", self.folder / name] for name in ("text", "published"))
        for options, status, reason in (
            ([*text, "--prompt", ""], 2, "--prompt: needs a byte at least"),
            ([*text, "--prompt", "a", "--init", "hf:x"], 2, "give --checkpoint or --init, one of them"),
            ([*published, "--prompt", "a"], 1,
             f"{self.folder}/published/step-000001: was trained on published data, not on text"),
            (["--init", f"hf:{out}", "--prompt", "1+a"], 2, "--prompt: has the byte 97, and the model knows those below 61"),
        ):
            done = fsdp("generate", *options)
            self.assertEqual((done.returncode, done.stdout, done.stderr.decode()), (status, b"", f"fsdp generate: {reason}\n"))
