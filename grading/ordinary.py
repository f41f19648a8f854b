#!/usr/bin/env python3
"""Builds the submissions of ordinary.toml as the grader does: none may be rejected. With --points, also runs
their tests: each has all points of its task. Prints a line for each; exits with 1 if one is wrong."""

import argparse
import dataclasses
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from grader import course, grade, run, score, submission  # noqa: E402
from grader.course import ROOT, Refused, tomllib  # noqa: E402
from grader.programs import Builder, Program, new_job  # noqa: E402

FILE = "task3_forward_hooks/forward_hooks.cpp"
# Where a file's `use` stands: before this line.
PLACES = {FILE: "    unit->unshard();\n", "task2_flat_parameter/flat_layout.cpp": "  return layout;\n"}


def load():
    return tomllib.loads((ROOT / "grading" / "ordinary.toml").read_text())["submission"]


def solved():
    """The reference, as if it were handed in."""
    return submission.read(ROOT / "solutions")


def handed_in(entry):
    file = entry.get("file", FILE)
    base = solved()
    text = base.files[file].decode()
    if "use" in entry and entry["use"]:
        assert text.count(PLACES[file]) == 1, file
        text = text.replace(PLACES[file], f"{entry['use']}\n{PLACES[file]}")
    text = text.replace("\nnamespace fsdp {", f"\n{entry['before']}\nnamespace fsdp {{", 1)
    content = text.encode()
    if entry.get("windows"):
        content = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    own = {name: text.encode() for name, text in entry.get("files", {}).items()}
    return dataclasses.replace(base, files={**base.files, file: content, **own})


def task_of(entry):
    folder = entry.get("file", FILE).partition("/")[0]
    return next(task for task in course.tasks() if task.folder == folder)


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
            results = dict.fromkeys(grade.KINDS, result)
            got = score.score_task(task, "reference", results).points
            if got != task.points:
                return f"has {got:g} of {task.points:g} points: {result.why or result.problems}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", action="store_true", help="also run the tests, and compare the points")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these submissions")
    parser.add_argument("--part", metavar="I/N", help="the I-th of N parts of them")
    parser.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")
    arguments = parser.parse_args()
    entries = [entry for entry in load() if not arguments.only or entry["name"] in arguments.only]
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        entries = entries[part % parts :: parts]
    failed = 0
    try:
        grade.prepare(sorted({task_of(entry).number for entry in entries}))
        for entry in entries:
            started = time.monotonic()
            why = wrong(entry, arguments.points)
            failed += bool(why)
            print(f"{entry['name']:46} {time.monotonic() - started:4.0f} s {why or 'as it should be'}", flush=True)
    except Refused as refused:
        sys.exit(f"ordinary: {refused}")
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{len(entries) - failed} {failed} 0\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
