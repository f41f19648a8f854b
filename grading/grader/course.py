"""The data of the course that the grader needs: course.toml, grading/rubric.toml and the delivered
files of tasks/."""

import dataclasses
import functools
import hashlib
import re

from course.skeletons import (  # noqa: F401
    ROOT,
    Refused,
    folder_of,
    folders_of,
    one_line,
    printable,
    tomllib,
)

BUILD = ROOT / "build" / "default"


@dataclasses.dataclass(frozen=True)
class Problem:
    number: str
    name: str
    points: float
    suites: tuple


@dataclasses.dataclass(frozen=True)
class Task:
    number: int
    name: str
    sentinel: str  # name of the test that must pass before any point counts; "": none
    problems: tuple
    extensions: tuple  # problems whose points do not count in the task's points
    files: tuple  # the .cpp files of the task and its extensions: their paths in tasks/

    @property
    def folder(self):
        return f"task{self.number}_{self.name}"

    @property
    def folders(self):
        """The names of the task's folder and of the folder of its extensions, in tasks/ and in
        solutions/."""
        return folders_of(self.folder)

    @property
    def points(self):
        return sum(problem.points for problem in self.problems)

    @property
    def optional(self):
        """Returns whether all problems of this task are extensions. No other task builds on such a
        task."""
        return not self.problems


def digest(paths):
    """Returns a hash of the names and contents of these files of the repository."""
    state = hashlib.sha256()
    for path in sorted(paths):
        state.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return state.hexdigest()[:32]


@functools.cache
def tasks():
    found = []
    for task in tomllib.loads((ROOT / "course.toml").read_text())["task"]:
        problems, extensions = [], []
        for p in task["problem"]:
            problem = Problem(p["number"], p["name"], p["points"], tuple(p["suites"]))
            (extensions if p.get("extension") else problems).append(problem)
        files = tuple(
            path.relative_to(ROOT / "tasks").as_posix()
            for folder in folders_of(folder_of(task))
            for path in sorted((ROOT / "tasks" / folder).glob("*.cpp"))
        )
        found.append(Task(task["number"], task["name"], task.get("sentinel", ""), tuple(problems),
                          tuple(extensions), files))
    return tuple(found)


def test_names(folder="."):
    """Returns SUITE.NAME of every test in a folder of tests/. A test that runs on several numbers
    of ranks is listed once."""
    sources = " ".join(
        path.read_text() for path in sorted((ROOT / "tests" / folder).rglob("*.cpp"))
    )
    kinds = r"TEST(?:_[PF]|_IN_A_PROCESS)?|MULTI_RANK_TEST|(?:LASTING_)?MISUSE_TEST"
    tests = rf"\b(?:{kinds})\(\s*(\w+),\s*(\w+)"
    return [".".join(found) for found in re.findall(tests, sources)]


@functools.cache
def rubric():
    return tomllib.loads((ROOT / "grading" / "rubric.toml").read_text())


def task_files(folder):
    """Returns a dict, path in tasks/ -> content of the .cpp files of all tasks. `folder`: tasks, or
    another folder of the repository with the same structure."""
    return {name: (ROOT / folder / name).read_bytes() for task in tasks() for name in task.files}


@functools.cache
def blank():
    """Returns a dict, path in tasks/ -> content of the .cpp files of tasks/ as students get
    them."""
    return task_files("tasks")


@functools.cache
def headers():
    """Returns a dict, path in tasks/ -> content of the course's headers in tasks/."""
    found = (path for task in tasks() for folder in task.folders
             for path in sorted((ROOT / "tasks" / folder).glob("*.h")))
    return {path.relative_to(ROOT / "tasks").as_posix(): path.read_bytes() for path in found}
