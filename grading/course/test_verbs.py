"""Tests the verbs that students use: python3 -m unittest discover grading."""

import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import course_copy
import handout
import skeletons
from course_copy import SKELETON

EXTENSION = "tasks/extensions/task5_sharded_optimizer/locate.cpp"


class Verbs(course_copy.CourseCopy):
    def test_hint_prints_one_level_and_the_command_for_the_next_one(self):
        hints = (self.root / "tasks/task3_forward_hooks/HINTS.md").read_text()
        for level in ("1", "2", "3"):
            status, text = self.run_verb("hint", "3.2", level)
            self.assertEqual(
                (status, text.splitlines()[0] in hints, "More: ./fsdp hint 3.2" in text),
                (0, True, level != "3"),
            )
        self.assertEqual(self.run_verb("hint", "3.2"), self.run_verb("hint", "3.2", "1"))
        for arguments, refused in (
            ((), 2),
            (("3",), 2),
            (("8.1",), 2),
            (("3.2", "4"), 2),
            (("3.9",), 1),
        ):
            self.assertEqual(self.run_verb("hint", *arguments)[0], refused, arguments)

    def test_reset_restores_the_skeletons_of_a_task_and_keeps_the_old_files_in_backup(self):
        files = {
            SKELETON: "forward_hooks.cpp",
            EXTENSION: "extensions/locate.cpp",
            SKELETON.replace("forward_hooks.cpp", "own.h"): "own.h",
        }
        first = {name: (self.root / name).read_text() for name in (SKELETON, EXTENSION)}
        for number, task, folder in (
            (1, "3", "task3_forward_hooks"),
            (2, "3", "task3_forward_hooks"),
            (1, "5", "task5_sharded_optimizer"),
        ):
            mine = [name for name in files if folder in name]
            for name in mine:
                (self.root / name).write_text(f"// mine, {number}\n")
            status, text = self.run_verb("reset", task)
            self.assertEqual(
                (status, f"kept in .backup/{folder}-{number}" in text), (0, True), text
            )
            for name in mine:
                kept = self.root / f".backup/{folder}-{number}" / files[name]
                self.assertEqual(kept.read_text(), f"// mine, {number}\n")
                self.assertEqual(
                    (self.root / name).read_text(), first.get(name, f"// mine, {number}\n")
                )

    def test_reset_does_nothing_if_the_task_is_as_delivered(self):
        status, text = self.run_verb("reset", "3")
        self.assertEqual(
            (status, "nothing to do" in text, (self.root / ".backup").exists()),
            (0, True, False),
            text,
        )
        self.assertEqual(self.run_verb("reset", "9")[0], 2)

    def test_a_task_is_blank_only_if_its_files_and_its_extensions_are_as_delivered(self):
        for name in (SKELETON, EXTENSION):
            (self.root / name).write_text((self.root / name).read_text() + "\n")
        done = self.run_function(
            "stacks", "for task in 3 4 5; do is_blank $task && echo blank $task; done"
        )
        self.assertEqual(done.stdout, "blank 4\n", done.stderr)

    def test_check_prints_the_code_that_the_grader_would_reject(self):
        for name, code in (
            (SKELETON, 'void f() { asm volatile("syscall"); }'),
            (EXTENSION, 'void f() { asm volatile("syscall"); }'),
            ("tasks/task6_prefetch/prefetch.cpp", '#include <cstdio>\nvoid f() { std::puts(""); }'),
        ):
            task = re.search(r"task\d", name)[0]
            made = self.root / f"build/default/CMakeFiles/mine_{task}.dir/{name}.o"
            made.parent.mkdir(parents=True)
            subprocess.run(
                ["c++", "-c", "-x", "c++", "-", "-o", made], input=code, text=True, check=True
            )
        done = self.run_function(
            "look_at_task",
            "set -euo pipefail; for i in 3 5 6; do look $i mine && echo good $i; done",
        )
        self.assertEqual(done.stdout, "good 5\ngood 6\n", done.stderr)
        for line, said in zip(
            done.stderr.splitlines(),
            (
                f"{SKELETON} uses an instruction of the kernel: ",
                f"{EXTENSION} uses an instruction of the kernel: ",
                "task 5 would be graded without its extensions",
            ),
            strict=True,
        ):
            self.assertIn(said, line)

    def said_of_changes(self):
        """Returns what ./fsdp check would print about files of the course that the student has
        changed."""
        done = self.run_function("changed_files", "set -euo pipefail; say_changed")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return done.stderr

    HEADER, GIVEN, ADDED = (
        "tasks/task3_forward_hooks/forward_hooks.h",
        "common/base/text.h",
        "common/base/mine.cpp",
    )
    DIFFERS = (
        "is not as the course delivered it; the grader uses its own, so your points there may "
        "differ:"
    )

    def change_files(self):
        """Changes or adds three files of the course, and also changes files of the student. ./fsdp
        check prints something only about the three."""
        for name in (
            self.HEADER,
            self.GIVEN,
            self.ADDED,
            SKELETON,
            EXTENSION,
            "tasks/task3_forward_hooks/own.h",
            "tasks/WRITEUP.md",
        ):
            with open(self.root / name, "a") as file:
                file.write("// changed\n")

    def test_check_in_a_handout_names_changed_files_of_the_course_and_how_to_restore_them(self):
        shutil.rmtree(self.root)
        for name, (content, executable) in handout.contents().items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.assertEqual(self.said_of_changes(), "")
        self.change_files()
        self.assertEqual(
            self.said_of_changes().splitlines(),
            [
                f"fsdp: {self.GIVEN} {self.DIFFERS} unpack the course again over this copy, with "
                f"./fsdp update ARCHIVE",
                f"fsdp: {self.HEADER} {self.DIFFERS} cp "
                f".pristine/{self.HEADER.removeprefix('tasks/')} {self.HEADER}",
                f"fsdp: {self.ADDED} {self.DIFFERS} remove it, or move it into the folder of your "
                f"task",
            ],
        )
        for name in ("cmake/pch.h", "CMakeLists.txt"):
            (self.root / name).unlink()
        self.assertIn("fsdp: ... and 2 more files of the course\n", self.said_of_changes())

    def test_check_prints_the_changed_files_of_the_course_before_it_builds(self):
        (self.root / "scripts/verbs/setup.sh").write_text("exit 1\n")
        (self.root / ".pristine/hashes").write_text(f"{'0' * 64}  {self.HEADER}\n")
        (self.root / ".pristine/delivered").write_text(f"{self.HEADER}\n")
        (self.root / "common").mkdir()
        for arguments, says in (
            (("3",), True),
            ((), True),
            (("5", "--base", "mine"), True),
            (("--solutions",), False),
        ):
            status, text = self.run_verb("check", *arguments)
            self.assertEqual(
                (status, f"fsdp: {self.HEADER} {self.DIFFERS} cp" in text), (1, says), text
            )

    def test_check_in_the_repository_names_changed_files_and_how_to_restore_them(self):
        shutil.rmtree(self.root / ".pristine")
        shutil.copytree(skeletons.ROOT / "common", self.root / "common")
        git = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "delivered"]):
            subprocess.run([*git, *words], check=True)
        self.assertEqual(self.said_of_changes(), "")
        self.change_files()
        self.assertEqual(
            sorted(self.said_of_changes().splitlines()),
            [
                f"fsdp: {name} {self.DIFFERS} git checkout HEAD -- {name}"
                if name != self.ADDED
                else f"fsdp: {name} {self.DIFFERS} remove it"
                for name in sorted((self.HEADER, self.GIVEN, self.ADDED))
            ],
        )

    def object_of(self, task, name, code):
        """Writes the code into the file `name` of tasks/ and compiles it. The object is at the path
        where the build would put it. Returns this path."""
        (self.root / name).write_text(code)
        made = self.root / f"build/default/CMakeFiles/mine_task{task}.dir/{name}.o"
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["c++", "-std=c++20", "-O1", "-c", self.root / name, "-o", made], check=True)
        return made

    def test_check_names_the_source_line_that_the_grader_would_reject(self):
        header = SKELETON.replace("forward_hooks.cpp", "own.h")
        (self.root / header).write_text(
            '#pragma once\n#include <dlfcn.h>\ninline void* end() { return dlopen("", 1); }\n'
        )
        opened = (
            '#include <fstream>\n// std::ofstream is not allowed\nvoid f() {\n  '
            'std::ofstream("a") << 3;\n}\n'
        )
        for code, said in (
            (opened, f"{SKELETON}:4 uses std::ofstream: "),
            (
                '#include <unistd.h>\n#include "own.h"\nvoid f() { end(); }\n',
                f"{header}:3, included by {SKELETON}, uses dlopen: ",
            ),
            (
                "#include <unistd.h>\n#define START fo##rk\nvoid f() { START(); }\n",
                f"{SKELETON} uses fork: ",
            ),
        ):
            self.object_of(3, SKELETON, code)
            done = self.run_function("look_at_task", "look 3 mine")
            self.assertIn(f"fsdp: {said}", done.stderr)

    def test_check_names_both_files_if_two_tasks_define_the_same_symbol(self):
        first, second = (
            "tasks/task1_meta_init/meta_init.cpp",
            "tasks/task2_flat_parameter/flat_layout.cpp",
        )
        objects = [
            self.object_of(
                task, name, "namespace fsdp { int helper() { return 1; } }\nint table[3];\n"
            )
            for task, name in ((1, first), (2, second))
        ]
        said = "".join(
            f"fsdp: {name} is defined in {first} and in {second}, and both are in one program: "
            f"give one of the two another "
            'name, or put it into "namespace { }", which makes it the file\'s own\n'
            for name in ("fsdp::helper()", "table")
        )
        log = self.root / "build/default/build.log"
        linkers = [
            ["ld", "-r"],
            *(
                ["c++", f"-fuse-ld={name}"]
                for name in ("bfd", "gold", "lld", "mold")
                if shutil.which(f"ld.{name}")
            ),
        ]
        for linker in linkers:
            done = subprocess.run(
                [*linker, "-o", "/dev/null", *objects],
                cwd=self.root,
                capture_output=True,
                text=True,
            )
            log.write_text(done.stderr)
            self.assertEqual(
                self.run_function("build_errors", "show_errors 2").stderr,
                f"fsdp: task 2 does not compile\n{said}",
                log.read_text(),
            )
        log.write_text(
            f"mold: error: duplicate symbol: {objects[0]}: {objects[1]}: fsdp::helper()\n"
        )
        self.assertEqual(self.run_function("build_errors", "show_errors 2").stderr,
                         f"fsdp: task 2 does not compile\n{said.splitlines()[0]}\n")
        log.write_text(f"{self.root}/{first}:3:1: error: expected ;\n")
        self.assertIn(
            f"{first}:3:1: error: expected ;",
            self.run_function("build_errors", "show_errors 2").stderr,
        )

    def test_check_refuses_an_unknown_problem_before_it_builds(self):
        for arguments in (["12"], ["8"], ["3.22"], ["3.9"], ["9"], ["all"], ["--world", "2", "3.9"],
                          ["--solutions", "9"], ["--base=mine", "--repeat", "2", "9"]):
            status, text = self.run_verb("check", *arguments)
            self.assertEqual(status, 2, text)
            self.assertIn(f"there is no task or problem '{arguments[-1]}'", text)
        self.assertFalse((self.root / "build").exists())

    def test_fsdp_check_refuses_options_such_as_stacks_which_only_its_script_may_set(self):
        for option in ("--stacks", "--blank", "--broken", "--rejected"):
            self.assertEqual(
                self.run_verb("check", "3", option, "3"),
                (2, f"fsdp: check: leave out {option}, which ./fsdp check gives by itself\n"),
            )

    def test_check_ends_with_the_reason_if_the_build_cannot_be_configured(self):
        (self.root / "scripts/verbs/setup.sh").write_text(
            "echo 'fsdp: please install these packages: g++' >&2; exit 1\n"
        )
        (self.root / SKELETON).write_text("// mine\n")
        for task in ("", "3"):
            status, text = self.run_verb("check", *task)
            self.assertEqual(
                (status, text.splitlines()[-1]),
                (1, "fsdp: please install these packages: g++"),
                text,
            )

    def test_install_refuses_a_wrong_prefix_or_preset_before_it_builds(self):
        (self.root / "file").write_text("")
        prefix, one = (
            str(self.root / "prefix"),
            "install needs one folder: the PREFIX to install into",
        )
        for arguments, reason in (
            ((), one),
            ((prefix, prefix), one),
            (("",), one),
            (
                ("/proc/prefix",),
                "install: '/proc/prefix' is no folder that can be written; name another one",
            ),
            (
                (f"{self.root}/file",),
                f"install: '{self.root}/file' is no folder that can be written; name another one",
            ),
            (
                ("--prefix", prefix),
                "option '--prefix' is unknown to install; allowed: --preset NAME",
            ),
            (
                ("--preset", "fast", prefix),
                "--preset 'fast' is unknown; allowed: default, debug, cuda, asan, tsan",
            ),
            (
                ("--preset", "asan", prefix),
                "install: --preset asan is only for tests; allowed: default, debug, cuda",
            ),
        ):
            self.assertEqual(self.run_verb("install", *arguments), (2, f"fsdp: {reason}\n"))
        self.assertFalse((self.root / "build").exists())

    @unittest.skipIf(pathlib.Path("/dev/nvidia0").exists(), "this machine has a GPU")
    def test_train_refuses_device_cuda_on_a_machine_without_a_gpu_before_it_builds(self):
        status, text = self.run_verb("train", "--device", "cuda", "--mode", "fsdp")
        self.assertEqual(status, 2, text)
        self.assertIn("--device cuda needs an NVIDIA GPU", text)
        self.assertFalse((self.root / "build").exists())

    def test_a_verb_that_needs_python_first_creates_a_missing_venv(self):
        shutil.copytree(skeletons.ROOT / "grading", self.root / "grading", dirs_exist_ok=True)
        for verb in ("handout", "grade", "gradescope"):
            (self.root / ".venv").rename(self.root / f"before {verb}")
            status, text = self.run_verb(verb, "--help")
            self.assertEqual(status, 0, text)
            self.assertTrue((self.root / ".venv/bin/python3").exists())

    def test_help_prints_the_usage_lines_of_all_verb_files_in_a_fixed_order(self):
        maintain = self.root / "scripts/maintain.txt"
        self.assertEqual(self.run_verb("help", "--maintain"), (0, maintain.read_text()))
        files = sorted((self.root / "scripts/verbs").glob("*.sh"))
        said = {path.stem: [line.replace("#: ", "  ", 1) for line in path.read_text().splitlines()
                            if line.startswith("#: ")] for path in files}
        text = self.run_verb("help")[1].split("\n\n")[1].splitlines()
        self.assertEqual(sorted(text), sorted(line for lines in said.values() for line in lines))
        verbs = list(dict.fromkeys(re.findall(r"^  ([a-z]+) ", "\n".join(text), re.MULTILINE)))
        self.assertEqual(
            [verbs[0], *verbs[-2:], sorted(verbs)], ["setup", "bench", "help", sorted(said)]
        )
        for verb in ("submit", "install", "setup", "replay", "build"):  # verbs that run no program
            self.assertEqual(
                self.run_verb(verb, "--help"),
                (0, "\n".join(["usage: ./fsdp VERB [OPTION...]", "", *said[verb], ""])),
            )

    def test_a_verb_exists_only_if_its_file_in_scripts_verbs_exists(self):
        for name in ("scripts/maintain.txt", "scripts/verbs/handout.sh"):
            (self.root / name).unlink()
        text = self.run_verb("help")[1]
        for words, shown in (
            ("  hint PROBLEM", True),
            ("  handout OUT", False),
            ("--maintain", False),
        ):
            self.assertEqual(words in text, shown, words)
        for verb in ("handout", "../build", "", "Help"):
            status, text = self.run_verb(verb, "x.tar.gz")
            self.assertEqual(
                (
                    status,
                    text.startswith(f"fsdp: unknown verb '{verb}'; allowed: setup, doctor, build,"),
                ),
                (2, True),
                text,
            )


def fsdp(*arguments):
    """Runs ./fsdp of this repository. Returns the finished process; its output is bytes."""
    return subprocess.run([skeletons.ROOT / "fsdp", *arguments], capture_output=True)


class Check(unittest.TestCase):
    def test_help_of_check_has_every_option_that_scripts_and_the_grader_pass_to_it(self):
        text = fsdp("check", "--help").stdout.decode()
        given = set()
        for name in (
            "scripts/verbs/check.sh",
            "grading/grader/run.py",
            "grading/course/samples.py",
        ):
            given |= set(re.findall(r"--[a-z-]+", (skeletons.ROOT / name).read_text()))
        for option in given & {
            "--stacks",
            "--blank",
            "--broken",
            "--rejected",
            "--stop-hanging",
            "--seconds",
            "--json",
        }:
            self.assertRegex(text, rf"(?m)^  {option} ")
        self.assertGreater(len(given), 6)


class Hello(unittest.TestCase):
    def test_hello_prints_what_every_rank_has_after_each_collective(self):
        text = fsdp("hello", "--world", "3").stdout.decode()
        everything = ["0 0 0 0 1 1 1 1 2 2 2 2"] * 3
        parts = ["6 6 6 6", "12 12 12 12", "18 18 18 18"]
        self.assertEqual(
            re.findall(r"has  \[(.*)\]", text), everything + parts + [" ".join(parts)] * 3
        )
        self.assertEqual(re.findall(r"received (\d+) bytes", text), ["32", "32", "64"])
        page = " ".join((skeletons.ROOT / "COURSE.md").read_text().split())
        for world in ("2", "8"):
            received = re.findall(
                r"received (\d+) bytes", fsdp("hello", "--world", world).stdout.decode()
            )
            self.assertIn(f"W = {world}: {', '.join(received)}.", page)

    def test_hello_with_skip_names_the_rank_and_the_collective_that_it_left_out(self):
        for rank in ("1", "2", "3"):
            done = fsdp("hello", "--skip", rank)
            self.assertEqual(done.returncode, 1)
            cause = (
                f"likely cause: rank {rank} left out reduce_scatter hello, or called all_reduce "
                f"hello out of turn\n"
            )
            self.assertIn(cause, done.stderr.decode())


class Generate(unittest.TestCase):
    """Tests ./fsdp generate with two checkpoints of one step each."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        fsdp("generate", "--help")  # builds the program, which prints to stderr
        for name, options in (("text", ["--seq", "18"]), ("published", ["--recipe", "published"])):
            fsdp(
                "train",
                "--model",
                "gpt2-tiny",
                "--steps",
                "1",
                *options,
                "--checkpoint-dir",
                cls.folder / name,
            )

    def test_generate_continues_the_prompt_by_the_given_number_of_bytes(self):
        done = fsdp(
            "generate", "--checkpoint", self.folder / "text", "--prompt", "Größe", "--tokens", "30"
        )
        prompt = "Größe".encode()
        self.assertEqual(
            (done.returncode, done.stderr, len(done.stdout)), (0, b"", len(prompt) + 30 + 1)
        )
        self.assertTrue(done.stdout.startswith(prompt) and done.stdout.endswith(b"\n"), done.stdout)

    def test_generate_prints_one_line_with_the_reason_if_it_cannot_continue_a_prompt(self):
        out = self.folder / "hf"
        fsdp("export", "--format", "hf", "--checkpoint", self.folder / "published", "--output", out)
        text, published = (["--checkpoint", self.folder / name] for name in ("text", "published"))
        for options, status, reason in (
            ([*text, "--prompt", ""], 2, "--prompt: needs at least one byte"),
            (
                [*text, "--prompt", "a", "--init", "hf:x"],
                2,
                "give --checkpoint or --init, one of them",
            ),
            (
                [*published, "--prompt", "a"],
                1,
                f"{self.folder}/published/step-000001: was trained on published data, not on text",
            ),
            (
                ["--init", f"hf:{out}", "--prompt", "1+a"],
                2,
                "--prompt: byte 2 is 97, and the model has 61 ids",
            ),
        ):
            done = fsdp("generate", *options)
            self.assertEqual(
                (done.returncode, done.stdout, done.stderr.decode()),
                (status, b"", f"fsdp generate: {reason}\n"),
            )
