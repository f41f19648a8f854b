#!/usr/bin/env python3
"""Plays on the reference solutions what the texts tell a student to do, and compares what they say.

It makes the changes of the sections "Break it" (break_it.toml), runs the commands of the tables "Measure"
(measure.toml) and makes the output that COURSE.md and README.md show (samples.toml). Prints a line for
each, and exits with 1 if one is not as the text says. --write puts what a run shows into the text: the
sentence on other tests that fail, and the shown output. What the tests said of a change before is kept,
as of a submission.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from course import break_it, measure, samples  # noqa: E402
from grader import bank, course, grade, programs  # noqa: E402
from grader.course import Refused  # noqa: E402

KINDS = {"break_it": break_it, "measure": measure, "samples": samples}
JOBS = 2


def load(kinds):
    return [{**entry, "kind_of_claim": kind} for kind in kinds for entry in KINDS[kind].load()]


def prepare(entries):
    """Builds what the entries run, but for the changed solutions."""
    changed = {entry["task"] for entry in entries if "old" in entry}
    if changed:
        grade.prepare(sorted(changed))
    others = [entry for entry in entries if "old" not in entry]
    tests = {entry["task"] for entry in others if "task" in entry}
    if any(entry.get("kind") == "solutions" for entry in others):
        tests = {task.number for task in course.tasks()}
    if others:
        programs.build("check", "hello", "reference_train",
                       *(f"reference_task{number}_tests" for number in sorted(tests)))


def play(entry, arguments):
    """What is wrong with it, and the seconds it took."""
    started = time.monotonic()
    try:
        wrong = KINDS[entry["kind_of_claim"]].play(entry, arguments)
    except Refused as refused:
        wrong = [str(refused)]
    return entry, wrong, time.monotonic() - started


def play_all(entries, arguments):
    """The number of those that are wrong."""
    count = 0
    jobs = 1 if arguments.write else JOBS  # the next one is compiled while the one before runs
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for entry, wrong, seconds in pool.map(lambda e: play(e, arguments), entries):
            verdict = "is not as the text says" if wrong else "as the text says"
            print(f"{bank.shortened(entry['name'], 70):70} {verdict}  {seconds:.0f} s", flush=True)
            print("".join(f"    {line}\n" for line in wrong), end="", flush=True)
            count += bool(wrong)
    return count


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="only these")
    parser.add_argument("--task", type=int, help="of one task's handout")
    parser.add_argument("--show", action="store_true", help="print what the runs print")
    parser.add_argument("--write", action="store_true", help="put what the runs show into the texts")
    parser.add_argument("--fresh", action="store_true", help="run again the changes that were run before")
    parser.add_argument("--check", action="store_true", help="the form of the lists; runs nothing")
    bank.add_options(parser, "claim")
    return parser.parse_args()


def main():
    arguments = parse()
    try:
        if arguments.check:
            sys.exit("\n".join(wrong for kind in KINDS.values() for wrong in kind.wrong_forms()) or 0)
        entries = load(arguments.kinds or KINDS)
        if arguments.task:
            entries = [entry for entry in entries if entry.get("task") == arguments.task]
        entries = bank.chosen(entries, arguments)
        prepare(entries)
    except Refused as refused:
        sys.exit(f"claims: {refused}")
    wrong = play_all(entries, arguments)
    print(f"{len(entries)} claims, {len(entries) - wrong} as the text says, {wrong} not")
    bank.add_totals(arguments, len(entries) - wrong, wrong)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
