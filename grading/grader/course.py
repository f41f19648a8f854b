"""The course as the grader needs it: course.toml, grading/rubric.toml and the first state of tasks/."""

import dataclasses
import functools
import hashlib
import re

from course.skeletons import ROOT, Refused, folder_of, folders_of, one_line, printable, tomllib  # noqa: F401

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
    sentinel: str  # a test; if it fails, no point of the task counts
    problems: tuple
    extensions: tuple  # problems whose points are no part of the task's
    files: tuple  # that a student hands in: their paths in tasks/

    @property
    def folder(self):
        return f"task{self.number}_{self.name}"

    @property
    def folders(self):
        """Of its files, in tasks/ and in solutions/."""
        return folders_of(self.folder)

    def path_of(self, name):
        """The path in tasks/ of its file `name`."""
        found = [path for path in self.files if path.endswith(f"/{name}")]
        if len(found) != 1:
            raise Refused(f"task {self.number} has {len(found)} files called {name}")
        return found[0]

    @property
    def points(self):
        return sum(problem.points for problem in self.problems)


def digest(paths):
    """Of these files of the repository: their names and what they hold."""
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
        paths = [path for folder in folders_of(folder_of(task))
                 for path in sorted((ROOT / "tasks" / folder).glob("*.*"))]
        files = tuple(path.relative_to(ROOT / "tasks").as_posix() for path in paths
                      if path.suffix in (".h", ".cpp"))
        found.append(Task(task["number"], task["name"], task["sentinel"], tuple(problems),
                          tuple(extensions), files))
    return tuple(found)


def test_names(folder="."):
    """SUITE.NAME of every test in a folder of tests/, whatever the number of ranks."""
    sources = " ".join(path.read_text() for path in sorted((ROOT / "tests" / folder).rglob("*.cpp")))
    tests = r"\b(?:TEST(?:_[PF])?|MULTI_RANK_TEST)\(\s*(\w+),\s*(\w+)"
    return [".".join(found) for found in re.findall(tests, sources)]


@functools.cache
def rubric():
    return tomllib.loads((ROOT / "grading" / "rubric.toml").read_text())


def task_files(folder):
    """Path in tasks/ -> content, of every listed file, from another folder of that form."""
    return {name: (ROOT / folder / name).read_bytes() for task in tasks() for name in task.files}


OTHERS = ("second",)


def other_solution(name):
    """Of a correct solution that is written differently: its files, as of task_files()."""
    return task_files(f"grading/{name}_solution")


@functools.cache
def blank():
    """As a student gets them."""
    return task_files("tasks")
