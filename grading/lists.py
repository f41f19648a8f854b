"""What the programs that go through a list have in common: faults, submissions, course/samples."""

import argparse
import concurrent.futures
import subprocess
import sys
import time

from grader.course import ROOT, Refused, tomllib


def load(file):
    """The tables of a file of grading/, each with its `name`."""
    return [{"name": name, **entry} for name, entry in tomllib.loads((ROOT / "grading" / file).read_text()).items()]


def parser(description):
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    made.add_argument("--only", nargs="+", metavar="NAME", help="only what has these names")
    made.add_argument("--part", metavar="I/N", help="only the I-th of N parts of the list")
    made.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")
    return made


def chosen(entries, arguments):
    """Those of the entries that --only and --part choose."""
    entries = [entry for entry in entries if not arguments.only or entry["name"] in arguments.only]
    part, parts = map(int, (arguments.part or "0/1").split("/"))
    return entries[part % parts :: parts]


def play(arguments, entries, attempt, at_a_time=1):
    """Prints a line for each entry: what is wrong with it, which `attempt` finds out. Ends the program."""

    def timed(entry):
        started = time.monotonic()
        try:
            wrong = attempt(entry)
        except (Refused, subprocess.TimeoutExpired) as error:
            wrong = str(error)
        return wrong, time.monotonic() - started

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        for entry, (wrong, seconds) in zip(entries, pool.map(timed, entries)):
            failed += bool(wrong)
            print(f"{entry['name'][:70]:70} {seconds:4.0f} s {wrong or 'as it should be'}", flush=True)
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{len(entries) - failed} {failed} 0\n")
    sys.exit(1 if failed else 0)
