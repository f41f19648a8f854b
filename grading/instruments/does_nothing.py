#!/usr/bin/env python3
"""Lists the tests that pass although no function of their task does anything.

Each function of the skeletons returns at once, with an empty value. A test that passes on that shows
nothing: it is about what must not happen, and does not show that what must happen does. Each task runs
over the reference ones before it. Exits with 1 if a test passes.
"""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from grader import changed, course, grade  # noqa: E402
from grader.course import Refused  # noqa: E402
from grader.submission import Submission  # noqa: E402

TODO = re.compile(r'^(?P<head>\w[^;{}]*) \{\n  todo\("[^"]+", "[\d.]+"\);\n\}$', re.MULTILINE)


def emptied(text):
    """A skeleton's source whose functions return at once."""

    def without_todo(found):
        head = found["head"]
        returns_nothing = head.startswith("void ") or re.match(r"(\w+)::\1\(", head)
        return f"{head} {{{'' if returns_nothing else ' return {}; '}}}"

    return TODO.sub(without_todo, text)


def files():
    return {name: emptied(blank.decode()).encode() for name, blank in course.blank().items()}


def passing(task):
    """The tests that pass, each with its ranks."""
    tests = changed.usual_result(Submission(files(), ()), task.number).tests
    return [f"{test['test']}/{test['ranks']}".rstrip("/") for test in tests if test["outcome"] == "passed"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", type=int, help="the tests of one task")
    arguments = parser.parse_args()
    tasks = [task for task in course.tasks() if arguments.task in (None, task.number)]
    count = 0
    try:
        grade.prepare([task.number for task in tasks])
        for task in tasks:
            found = passing(task)
            count += len(found)
            print(f"task {task.number} {task.name}: {len(found)} tests pass", *found, sep="\n  ", flush=True)
    except Refused as refused:
        sys.exit(f"does_nothing: {refused}")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
