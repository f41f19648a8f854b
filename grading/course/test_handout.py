"""What a handout holds, and what it must not: python3 -m unittest discover grading."""

import pathlib
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handout  # noqa: E402
import skeletons  # noqa: E402


def telling_lines(text):
    """The lines of a body that say something: not braces, not "return result;"."""
    lines = (line.strip() for line in text.splitlines())
    return {line for line in lines if len(line) >= 24 and not line.startswith(("//", "#include"))}


def solution_lines(tasks):
    """The lines that solutions alone have, by task; those that students are given are left out."""
    given = set()
    for folder in ("common", "tests", "programs", "examples", "appendix"):
        for path in (handout.ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cpp"):
                given |= telling_lines(path.read_text())
    for text in skeletons.generated().values():
        given |= telling_lines(text)
    lines = set()
    for task in tasks:
        for path in (handout.ROOT / "solutions").glob(f"task{task}_*/*"):
            lines |= telling_lines(path.read_text())
    return lines - given


def found_in(lines, files):
    """The files, with a line, in which one of `lines` is."""
    for name, (data, _) in files.items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue  # a picture
        for line in telling_lines(text) & lines:
            yield f"{name}: {line}"


class Handout(unittest.TestCase):
    def test_has_no_line_of_a_solution(self):
        lines = solution_lines(range(1, 8))
        self.assertGreater(len(lines), 300)
        self.assertEqual(list(found_in(lines, handout.contents())), [])

    def test_a_release_has_the_solutions_before_it_and_no_other(self):
        files = handout.contents(release=4)
        folders = {name.split("/")[1] for name in files if name.startswith("solutions/")}
        self.assertEqual([folder[:5] for folder in sorted(folders)], ["task1", "task2", "task3"])
        self.assertEqual(list(found_in(solution_lines(range(4, 8)), files)), [])

    def test_has_nothing_of_the_grader(self):
        for name in handout.contents():
            self.assertFalse(name.startswith(("grading/", "solutions/", ".ci/", "writeup/")), name)

    def test_every_task_has_its_texts_and_a_first_state(self):
        files = handout.contents()
        for folder in (handout.ROOT / "solutions").iterdir():
            for name in ("README.md", "HINTS.md"):
                self.assertIn(f"tasks/{folder.name}/{name}", list(files))
            for header in folder.glob("*.h"):
                kept = files[f".pristine/{folder.name}/{header.name}"]
                self.assertEqual(kept, files[f"tasks/{folder.name}/{header.name}"])

    def test_archives_of_the_same_files_are_the_same(self):
        files = {"fsdp": (b"#!/bin/sh\n", True), "common/base/todo.h": (b"", False)}
        with tempfile.TemporaryDirectory() as folder:
            archives = []
            for name in ("a.tar.gz", "b.tar.gz"):
                path = pathlib.Path(folder) / name
                handout.write(path, files, 1_700_000_000)
                archives.append(path.read_bytes())
                with tarfile.open(path) as archive:
                    member = archive.getmember("fsdp-course/fsdp")
                    self.assertEqual((member.mode, member.mtime), (0o755, 1_700_000_000))
            self.assertEqual(archives[0], archives[1])


if __name__ == "__main__":
    unittest.main()
