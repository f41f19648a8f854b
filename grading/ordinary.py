#!/usr/bin/env python3
"""Builds the submissions of ordinary.toml as the grader does: none may be rejected. With --points, also runs
their tests: each has all points of its task. Prints a line for each; exits with 1 if one is wrong."""

import dataclasses
import sys

import lists
from grader import course, grade, run, score, submission
from grader.course import ROOT, Refused
from grader.programs import Builder, Program, new_job

FILE = "task3_forward_hooks/forward_hooks.cpp"
# Where a file's `use` stands: before this line.
PLACES = {FILE: "    unit->unshard();\n", "task2_flat_parameter/flat_layout.cpp": "  return layout;\n"}


def load():
    return [{"file": FILE, **entry} for entry in lists.load("ordinary.toml")]


def handed_in(entry):
    """The reference with what the entry has besides."""
    file = entry["file"]
    base = submission.read(ROOT / "solutions")
    text = base.files[file].decode()
    if "use" in entry:
        assert text.count(PLACES[file]) == 1, file
        text = text.replace(PLACES[file], f"{entry['use']}\n{PLACES[file]}")
    text = text.replace("\nnamespace fsdp {", f"\n{entry['before']}\nnamespace fsdp {{", 1)
    content = text.encode()
    if entry.get("windows"):
        content = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    own = {name: text.encode() for name, text in entry.get("files", {}).items()}
    return dataclasses.replace(base, files={**base.files, file: content, **own})


def task_of(entry):
    return next(task for task in course.tasks() if entry["file"] in task.files)


def wrong(entry, points):
    """What the grader has against it, empty if nothing."""
    task = task_of(entry)
    program = Program(task, "reference")
    with new_job() as job:
        builder = Builder(handed_in(entry), job)
        builder.compile([program])
        built = builder.build(program)
        notes = "; ".join(builder.notes())
        if built.why or built.left_out:
            return built.why or built.left_out
        if bool(notes) != ("remark" in entry) or entry.get("remark", "") not in notes:
            return f"the instructor is told '{notes}'"
        if points:
            result = run.run_tests(built.path, task, "")
            got = score.score_task(task, "reference", dict.fromkeys(grade.KINDS, result)).points
            if got != task.points:
                return f"has {got:g} of {task.points:g} points: {result.why or result.problems}"
    return ""


def main():
    parser = lists.parser(__doc__)
    parser.add_argument("--points", action="store_true", help="also run the tests, and compare the points")
    arguments = parser.parse_args()
    entries = lists.chosen(load(), arguments)
    try:
        grade.prepare(sorted({task_of(entry).number for entry in entries}))
    except Refused as refused:
        sys.exit(f"ordinary: {refused}")
    lists.play(arguments, entries, lambda entry: wrong(entry, arguments.points))


if __name__ == "__main__":
    main()
