#!/usr/bin/env python3
"""leaderboard.py PROGRAM [OPTION...] [FILE]: trains with the training program PROGRAM and the
options in FILE, a leaderboard.toml. Measures the time and the memory for the leaderboard, as the
grader does, and prints one line."""

import argparse
import json
import pathlib
import secrets
import subprocess
import sys

from grader import leaderboard
from grader.course import ROOT, Refused


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="fsdp leaderboard",
        description="Measures the choices in FILE with your seven tasks, by a clock that counts.",
    )
    parser.add_argument("file", nargs="?", type=pathlib.Path, metavar="FILE",
                        default=ROOT / "tasks" / leaderboard.FILE,
                        help=f"the choices (default tasks/{leaderboard.FILE})")
    parser.add_argument("--stack", choices=("reference", "mine"),
                        help="whose tasks: reference (solutions/) or mine (tasks/)")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write the numbers")
    parser.add_argument("--threads", type=int, default=1,
                        help="CPU threads of each rank; they change no number (default 1)")
    options = parser.parse_args(arguments)
    if options.json and options.json.exists() and options.file.exists():
        if options.json.samefile(options.file):
            parser.error(f"--json {options.json}: has the choices, which would be replaced; give "
                         "another file")
    return options


def main(program, arguments):
    options = parse(arguments)

    def train(training):
        done = subprocess.run([program, *training, "--threads", str(options.threads)],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout.decode(errors="replace")

    try:
        choices = options.file.read_bytes()
    except OSError as error:
        sys.exit(f"fsdp leaderboard: {options.file} can't be read: {error.strerror}")
    try:
        ranks = leaderboard.measure(choices, secrets.randbelow(1_000_000), train, train)
    except (OSError, Refused) as error:
        sys.exit(f"fsdp leaderboard: {error}")
    print(f"{ranks.milliseconds:,.3f} ms for the training, of them "
          f"{ranks.nanoseconds / 1e6 - ranks.computing / 1e6:,.3f} ms not computing; a rank has at "
          f"most {ranks.peak:,} of {leaderboard.MEMORY:,} bytes", flush=True)
    if options.json:
        numbers = {"milliseconds": ranks.milliseconds, "peak": ranks.peak,
                   "choices": leaderboard.choices_of(choices)}
        try:
            options.json.write_text(json.dumps(numbers) + "\n")
        except OSError as error:
            sys.exit(f"fsdp leaderboard: {options.json} can't be written: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
