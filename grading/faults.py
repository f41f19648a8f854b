#!/usr/bin/env python3
"""Checks that the test of each fault in faults/taskN.toml catches this fault.

A fault is a change of the reference solution. It is caught if its test fails on some number of
ranks, 1 to 4, and prints the fault's message. For each fault, one file is compiled, a program is
linked and one test runs (changed.py). --nothing lists instead the tests that pass although no
function of the task's skeleton does anything. See also grading/faults/README.md.
"""

import pathlib
import re
import sys
import tempfile

import changed
import lists
from grader import course
from grader.course import ROOT, Refused, tomllib

FIELDS = {"name", "task", "test", "mistake", "file", "old", "new", "message"}
OPTIONAL = {"old_2", "new_2", "old_3", "new_3"}
SECONDS = 120  # time limit of a test
TODO = re.compile(r'^(?P<head>\w[^;{}]*) \{\n  todo\("[^"]+", "[\d.]+"\);\n\}$', re.MULTILINE)


def load(task):
    """Returns the faults in faults/taskN.toml of a task, each as a dict with all fields of
    FIELDS."""
    text = (ROOT / "grading" / "faults" / f"task{task}.toml").read_text()
    return [
        {
            "name": name,
            "task": task,
            "test": f"{suite}.{test}",
            "file": file_of(task, fault["old"]),
            "new": "",
            **fault,
        }
        for suite, tests in tomllib.loads(text).items()
        for test, faults in tests.items()
        for name, fault in faults.items()
    ]


def file_of(task, old):
    """Returns the file of the task's solution that has the old text. Returns "none" if no file or
    several files have it; such a fault must name its file."""
    found = [name for name, path in changed.paths_of(task).items() if old in path.read_text()]
    return found[0] if len(found) == 1 else "none"


def files_of(fault):
    """Returns the files that decide whether the fault is caught: the file that it changes, the
    files with its test's suite, and the headers of its task."""
    task = fault["task"]
    changed_file = changed.paths_of(task).get(fault["file"])
    tests = [
        path
        for path in (ROOT / "tests").glob(f"task{task}_*/*")
        if fault["test"].partition(".")[0] in path.read_text()
    ]
    contract = (ROOT / "tasks").rglob(f"task{task}_*/*.h")
    return {
        str(path.relative_to(ROOT))
        for path in (*([changed_file] if changed_file else []), *tests, *contract)
    }


def wrong_forms(faults):
    """Yields the mistakes in the entries `faults` of the bank that can be found without running a
    test."""
    tests = {task.number: course.test_names(task.folder) for task in course.tasks()}
    for fault in faults:
        if wrong := FIELDS.symmetric_difference(fault) - OPTIONAL:
            yield f"{fault['name']}: too few fields or too many: {', '.join(sorted(wrong))}"
            continue
        if fault["test"] not in tests[fault["task"]]:
            yield f"{fault['name']}: there is no test {fault['test']}"
        try:
            changed.changed_text(fault["task"], fault)
        except Refused as refused:
            yield str(refused)


def attempt(fault, show):
    """Runs the fault's test on the reference solution with the fault. Returns why the fault is not
    caught; "" if it is caught."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "tests"
        changed.build(fault["task"], fault, program)
        status, output = changed.run(program, fault["test"], SECONDS)
    if show:
        print(output)
    if status == 0:
        return f"survives: {fault['test']} passes"
    return (
        ""
        if fault["message"] in output
        else f"survives: {fault['test']} does not print: {fault['message']}"
    )


def emptied(text):
    """Returns the source of a skeleton in which each function that only calls todo() returns an
    empty value instead."""

    def without_todo(found):
        head = found["head"]
        returns_nothing = head.startswith("void ") or re.match(r"(\w+)::\1\(", head)
        return f"{head} {{{'' if returns_nothing else ' return {}; '}}}"

    return TODO.sub(without_todo, text)


def passing_on_nothing(task):
    """Returns the tests of the task that pass although the functions of its skeleton do nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        objects = []
        like = next(path for path in changed.paths_of(task).values() if path.suffix == ".cpp")
        for path in (ROOT / "tasks").rglob("*.cpp"):
            if path.parent.name.startswith(f"task{task}_"):
                source = folder / path.name
                source.write_text(emptied(path.read_text()))
                objects.append(source.with_suffix(".o"))
                changed.compile_as(like, source, task, objects[-1])
        changed.link_with(task, objects, changed.paths_of(task).values(), folder / "tests")
        program = folder / "tests"
        runs = ((name, *changed.run(program, name, SECONDS)) for name in changed.tests_in(program))
        return [
            name for name, status, output in runs if status == 0 and "[  SKIPPED ]" not in output
        ]


def main():
    parser = lists.parser(__doc__)
    parser.add_argument("--task", type=int, choices=range(8),
                        help="only the faults of this task")
    parser.add_argument("--show", action="store_true", help="print what the tests print")
    parser.add_argument("--check", action="store_true",
                        help="check only the form of the bank; run nothing")
    parser.add_argument(
        "--nothing", action="store_true",
        help="list the tests that pass on functions that do nothing"
    )
    arguments = parser.parse_args()
    tasks = [arguments.task] if arguments.task is not None else range(8)
    if arguments.nothing:
        changed.prepare(*(f"reference_task{task}_tests" for task in tasks))
        found = [test for task in tasks for test in passing_on_nothing(task)]
        sys.exit("\n".join(f"{test} passes on functions that do nothing" for test in found) or 0)
    faults = [fault for task in tasks for fault in load(task)]
    if arguments.check:
        sys.exit("\n".join(wrong_forms(faults)) or 0)
    faults = lists.chosen(faults, arguments, files_of, fixed=8, most=24)
    changed.prepare(*sorted({f"reference_task{fault['task']}_tests" for fault in faults}))
    lists.play(
        arguments, faults, lambda fault: attempt(fault, arguments.show), files_of, changed.jobs()
    )


if __name__ == "__main__":
    main()
