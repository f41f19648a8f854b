#!/usr/bin/env python3
"""A term, played on the whole course: unpacks a fresh handout, works the tasks with solutions of its own,
and unpacks the releases 2 to 7 over it, one after another. After each step compares what ./fsdp check
says with what it should: the points, what each task was tested over, and that nothing stale was run.
Prints a line for each step, with its seconds. Takes 15 minutes on two cores.

test_staged_release.py plays the same term on a course of the same form whose tasks are a few lines.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handout  # noqa: E402
import skeletons  # noqa: E402

ROOT = skeletons.ROOT
MOST_SECONDS = 60  # of a step, but for the first that compiles a task


def text_of(first, last):
    """As `check` names tasks."""
    if first == last:
        return f"task {first}"
    return f"tasks {first} {'and' if first + 1 == last else 'to'} {last}"


def sentence(task, solutions):
    """What `check` says if the first `solutions` tasks under `task` are solutions."""
    plural = "s" if solutions > 1 else ""
    parts = [f"the reference solution{plural} of {text_of(1, solutions)}"] if solutions else []
    parts += [f"your own {text_of(solutions + 1, task - 1)}"] if solutions < task - 1 else []
    return f"Task {task} was tested over {' and '.join(parts)}."


class Course:
    """What is released and what a student writes: of this repository."""

    def __init__(self):
        self.tasks = skeletons.tomllib.loads((ROOT / "course.toml").read_text())["task"]

    def folder(self, task):
        return f"task{task}_{self.tasks[task - 1]['name']}"

    def points(self, task):
        problems = self.tasks[task - 1]["problem"]
        return sum(problem["points"] for problem in problems if not problem.get("extension"))

    def suites(self, task):
        return [suite for p in self.tasks[task - 1]["problem"] for suite in p["suites"]]

    def contents(self, release):
        return handout.contents(release)

    def own(self, task):
        """Path in tasks/ -> text, of the student's solution, which is not the one that will be released."""
        second = ROOT / "grading/second_solution"
        paths = [path for folder in skeletons.folders_of(self.folder(task))
                 for path in (second / folder).glob("*.[hc]*")]
        return {path.relative_to(second).as_posix(): path.read_text() for path in paths}

    def marked(self, task, release):
        """A file of the task's tests, with one more test, whose name tells the release."""
        suite = self.suites(task)[0]
        for path in sorted((ROOT / "tests" / self.folder(task)).glob("*.cpp")):
            text = path.read_text()
            test = re.search(rf"^TEST(_P)?\({suite},", text, re.MULTILINE)
            if test:
                added = f"{test[0]} is_of_release_{release}) {{}}\n\n"
                text = text[: test.start()] + added + text[test.start() :]
                return str(path.relative_to(ROOT)), text.encode()
        raise RuntimeError(f"no test of {suite}")


class Copy:
    """A student's copy, and what is wrong with it."""

    def __init__(self, course, folder, say=lambda line: None):
        self.course, self.folder, self.say = course, folder, say
        self.root = folder / handout.FOLDER
        self.wrong = []

    def release(self, number):
        """Unpacks it, into the copy if there is one. The archives are all older than anything that was
        built. Each has another file of task 1's tests."""
        files = self.course.contents(number)
        name, content = self.course.marked(1, number)
        files[name] = (content, False)
        archive = self.folder / f"release{number}.tar.gz"
        handout.write(archive, files, 1_600_000_000 + number)
        if self.root.exists():
            subprocess.run([self.root / "fsdp", "update", archive], check=True)
        else:
            subprocess.run(["tar", "-xzf", archive, "-C", self.folder], check=True)
        self.number = number

    def write(self, task):
        for name, text in self.course.own(task).items():
            (self.root / "tasks" / name).write_text(text)

    def spoil(self, task):
        """From now on no program that contains the student's task compiles."""
        for folder in skeletons.folders_of(self.course.folder(task)):
            for path in (self.root / "tasks" / folder).glob("*.[hc]*"):
                path.write_text("#error this is the student's own task\n")

    def check(self, what, points, bases, most=MOST_SECONDS):
        """`what`: the arguments; `points`: those that it should show; `bases`: (task, solutions)."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        started = time.monotonic()
        command = [self.root / "fsdp", "check", *what.split(), "--json", result]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        seconds = time.monotonic() - started
        found = json.loads(result.read_text()) if result.exists() else {"points": None, "tests": []}
        said = re.findall(r"^Task \d was tested over .*$", done.stdout, re.MULTILINE)
        marks = {t["name"].partition("/")[0] for t in found["tests"] if "is_of_release" in t["name"]}
        wrong = []
        if found["points"] != points:
            wrong.append(f"{found['points']} points, not {points}")
        if said != [sentence(*base) for base in bases if base[0] > 1]:
            wrong.append(f"says {said}")
        if marks - {f"is_of_release_{self.number}"}:
            wrong.append(f"runs {marks}")
        if seconds > most:
            wrong.append(f"took {seconds:.0f} s")
        self.say(f"release {self.number}: check {what:8} {seconds:6.1f} s  {'; '.join(wrong) or 'ok'}")
        if wrong:
            self.wrong.append(f"release {self.number}, check {what}: {wrong}\n{done.stdout}{done.stderr}")


def play(copy):
    """Task K is written when release K is there, task 5 when release 4 is."""
    course = copy.course
    copy.release(1)
    copy.check("", 0, [])
    for number in range(1, 8):
        if number > 1:
            copy.release(number)
            written = [task for task in range(1, 8) if task < number or (task == 5 and number == 5)]
            bases = [(task, min(task, number) - 1) for task in written]
            copy.check("", sum(map(course.points, written)), bases)
            copy.spoil(number - 1)  # it must not matter any more
        copy.write(number)
        most = 600 if number == 1 else MOST_SECONDS
        copy.check(str(number), course.points(number), [(number, number - 1)], most)
        if number == 4:
            copy.write(5)
            copy.check("5", course.points(5), [(5, 3)])
        if number > 1:
            copy.write(number - 1)
    copy.check("7 --base mine", course.points(7), [(7, 0)])


def main():
    with tempfile.TemporaryDirectory(prefix="a term ") as folder:
        copy = Copy(Course(), pathlib.Path(folder), lambda line: print(line, flush=True))
        play(copy)
    print("\n".join(copy.wrong))
    sys.exit(1 if copy.wrong else 0)


if __name__ == "__main__":
    main()
