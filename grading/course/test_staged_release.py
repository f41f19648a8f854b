"""Tests a student's copy over which the next release is unpacked: python3 -m unittest discover
grading."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import handout
import skeletons

ROOT = skeletons.ROOT


def libtorch():
    """Returns the folder of the LibTorch that the build of this repository uses."""
    found = subprocess.run(
        ["cmake", "-P", ROOT / "cmake/missing.cmake"], capture_output=True, text=True
    )
    return found.stdout.partition("libtorch ")[2].strip()


class StagedRelease(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a term ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.root = self.folder / handout.FOLDER  # a student's copy

    def release(self, number, changed=()):
        """Makes release `number` of the handout. If the student has a copy already, unpacks the
        release over the copy with ./fsdp update; if not, the unpacked release becomes the student's
        copy. `changed`: name -> content of files that differ in this release; None: the release
        lacks the file."""
        files = {
            **handout.contents(number),
            **{name: (content, False) for name, content in dict(changed).items()},
        }
        files = {name: file for name, file in files.items() if file[0] is not None}
        archive = self.folder / f"release{number}.tar.gz"
        handout.write(archive, handout.with_list(files), 1_600_000_000 + number)
        if self.root.exists():
            subprocess.run([self.root / "fsdp", "update", archive], check=True)
        else:
            subprocess.run(["tar", "-xzf", archive, "-C", self.folder], check=True)

    def fsdp(self, *arguments, **environment):
        done = subprocess.run(
            [self.root / "fsdp", *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "LIBTORCH": libtorch(), **environment},
        )
        return done.returncode, done.stdout + done.stderr

    def stack_of(self, task, *options):
        """Returns the name of the stack that ./fsdp check uses for the task. A stack is the set of
        solutions, the student's and released ones, with which the tests are linked."""
        script = (
            f"source scripts/verb.sh; source scripts/stacks.sh; stack_of {task} {' '.join(options)}"
        )
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def code_in(self, target):
        """Returns two lists of task numbers: of the tasks whose code in solutions/ is compiled for
        the build target `target`, and of the tasks whose code in tasks/ is compiled for it."""
        listed = subprocess.run(["ninja", "-C", self.root / "build", "-t", "commands", target],
                                capture_output=True, text=True, check=True).stdout
        found = set(
            re.findall(r"\b(solutions|tasks)/(?:extensions/)?task(\d)_\w+/\w+\.cpp", listed)
        )
        return [
            sorted(int(task) for folder, task in found if folder == of)
            for of in ("solutions", "tasks")
        ]

    def test_a_task_is_linked_with_released_solutions_of_earlier_tasks_else_with_own_code(self):
        for number in (1, 2, 5, 8):
            self.release(number)
            configure = [
                "cmake",
                "-G",
                "Ninja",
                "-S",
                self.root,
                "-B",
                self.root / "build",
                f"-DLIBTORCH={libtorch()}",
            ]
            subprocess.run(configure, check=True, capture_output=True)
            for task in range(8):
                for options, solutions in (((), min(task, number) - 1), (("--base", "mine"), 0)):
                    target = f"{self.stack_of(task, *options)}_task{task}_tests"
                    own = [*range(solutions + 1, task + 1)]
                    with self.subTest(release=number, target=target):
                        self.assertEqual(
                            self.code_in(target),
                            [[*range(1, solutions + 1)], own or [0]],
                        )

    def test_submit_writes_the_zip_and_leaves_no_temporary_file(self):
        self.release(1)
        (self.root / ".venv").symlink_to(ROOT / ".venv")
        temporary, out = self.folder / "temporary", self.folder / "mine.zip"
        temporary.mkdir()
        status, text = self.fsdp("submit", out, TMPDIR=str(temporary))
        self.assertEqual((status, list(temporary.iterdir()), out.is_file()), (0, [], True), text)

    def test_check_with_solutions_that_are_not_released_is_refused_before_anything_is_built(self):
        self.release(4)
        for arguments, said in (
            (("5", "--base", "reference"), "no solution of task 4, on which task 5"),
            (("--base=reference",), "no solution of task 4, on which task 5"),
            (("4", "--solutions"), "no solution of task 4\n"),
        ):
            status, text = self.fsdp("check", *arguments)
            self.assertEqual((status, said in text), (2, True), text)
        self.assertFalse((self.root / "build").exists())

    def files(self):
        paths = self.root.rglob("*")
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in paths
            if path.is_file()
        }

    def test_update_keeps_begun_tasks_and_own_files_and_replaces_or_removes_all_others(self):
        gone = ["common/comm/a name.cpp", "tests/task3_forward_hooks/test_old.cpp"]
        self.release(1, dict.fromkeys(gone, b""))
        begun = [
            "tasks/task5_sharded_optimizer/sharded_optimizer.cpp",
            "tasks/WRITEUP.md",
            "tasks/extensions/task5_sharded_optimizer/locate.cpp",
        ]  # the student has begun task 5, so the third file stays too
        own = [
            "tests/task3_forward_hooks/test_mine.cpp",
            "common/comm/mine.h",
            "tasks/task3_forward_hooks/notes.md",
            "tasks/task5_sharded_optimizer/helper.h",
            "solutions.txt",
        ]
        for name in begun[:2] + own:
            (self.root / name).write_text("mine\n")
        before = self.files()
        brought = [
            "tasks/task5_sharded_optimizer/sharded_optimizer.h",
            "tasks/task3_forward_hooks/forward_hooks.cpp",
            "COURSE.md",
        ]
        lost = "tasks/task4_backward_hooks/backward_hooks.cpp"  # the student has not begun it
        self.release(3, {**dict.fromkeys((*brought, *begun), b"3"), begun[2]: None, lost: None})
        after = self.files()
        self.assertEqual(
            {name: after[name] for name in begun + own},
            {name: before[name] for name in begun + own},
        )
        self.assertEqual({after[name] for name in brought}, {b"3"})
        solutions = {name for name in after if name.startswith("solutions/")}
        self.assertEqual(after.keys() - solutions, before.keys() - {*gone, lost} | {"COURSE.md"})
        self.assertEqual(
            self.fsdp("update"), (2, "fsdp: update needs the archive of a later release\n")
        )


if __name__ == "__main__":
    unittest.main()
