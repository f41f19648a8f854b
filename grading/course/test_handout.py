"""What a handout holds, and what it must not: python3 -m unittest discover grading."""

import pathlib
import re
import tarfile
import tempfile
import unittest

import handout
import skeletons


def telling_lines(text):
    """The lines of a body that say something: not braces, not "return result;"."""
    lines = (line.strip() for line in text.splitlines())
    return {line for line in lines if len(line) >= 24 and not line.startswith(("//", "#include"))}


def solution_lines(tasks):
    """The lines that solutions alone have, by task; those that students are given are left out."""
    given = set()
    for folder in ("common", "trainer", "tests", "programs", "examples", "appendix"):
        for path in (handout.ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cpp"):
                given |= telling_lines(path.read_text())
    for text in skeletons.delivered().values():
        given |= telling_lines(text.decode())
    lines = set()
    for task in tasks:
        for folder in skeletons.folders_of(f"task{task}_*"):
            for path in (handout.ROOT / "solutions").glob(f"{folder}/*"):
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
    def test_has_every_page_of_docs_that_its_files_name(self):
        files = handout.contents()
        named = {path for data, _ in files.values() for path in re.findall(rb"\bdocs/[\w-]+\.\w+", data)}
        self.assertEqual({path.decode() for path in named} - set(files), set())

    def test_has_no_line_of_a_solution(self):
        lines = solution_lines(range(1, 8))
        self.assertGreater(len(lines), 300)
        self.assertEqual(list(found_in(lines, handout.contents())), [])

    def test_a_release_has_the_solutions_before_it_and_no_other(self):
        files = handout.contents(release=4)
        folders = {name.rpartition("/")[0] for name in files if name.startswith("solutions/")}
        expected = ["solutions/extensions/task2_flat_parameter"]  # the first of them
        expected += [f"solutions/task{task}" for task in (1, 2, 3)]
        self.assertEqual([folder if "extensions" in folder else folder.partition("_")[0]
                          for folder in sorted(folders)], expected)
        self.assertEqual(list(found_in(solution_lines(range(4, 8)), files)), [])

    def test_has_nothing_of_the_grader_but_what_submit_takes(self):
        names = [name for name in handout.contents() if name.startswith(("grading/", "solutions/", ".ci/", "writeup/"))]
        self.assertEqual(names, ["grading/course/skeletons.py", "grading/grader/course.py",
                                 "grading/grader/submission.py", "grading/plot.py", "grading/submit.py"])

    def test_every_task_has_its_texts_and_a_first_state(self):
        files = handout.contents()
        solutions = handout.ROOT / "solutions"
        for folder in solutions.glob("task*"):
            for name in ("README.md", "HINTS.md"):
                self.assertIn(f"tasks/{folder.name}/{name}", list(files))
        for source in solutions.glob("task*/*.cpp"):
            self.assertIn(f"tasks/{source.relative_to(solutions).as_posix()}", list(files))
        for name in filter(skeletons.is_source, list(files)):
            if name.startswith("tasks/"):
                self.assertEqual(files[f".pristine/{name.removeprefix('tasks/')}"], files[name])

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
