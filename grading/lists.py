"""What the programs that go through a list have in common: faults, submissions, course/samples."""

import argparse
import concurrent.futures
import hashlib
import json
import subprocess
import sys
import time

from grader.course import ROOT, Refused, tomllib


def load(file):
    """The tables of a file of grading/, each with its `name`."""
    return [
        {"name": name, **entry}
        for name, entry in tomllib.loads((ROOT / "grading" / file).read_text()).items()
    ]


def parser(description):
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    made.add_argument("--only", nargs="+", metavar="NAME", help="only what has these names")
    made.add_argument(
        "--changed",
        action="store_true",
        help="only what files concern that have changed since origin/main (on main: in the "
             "last commit), and "
        "a small fixed part; nothing that has passed with the same files",
    )
    made.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")
    return made


def of_shell(command):
    """What a command prints that uses the functions of scripts/build.sh."""
    script = f'root=$0; source "$0/scripts/build.sh"; cd "$0"; {command}'
    return subprocess.run(
        ["bash", "-c", script, ROOT], capture_output=True, text=True, check=True
    ).stdout


def changed_files():
    """The paths that have changed, as scripts/build.sh finds them."""
    return set(of_shell("changed_since_base").splitlines())


def added_to_lists():
    """The lines that were added to lists meanwhile, as one text."""
    diff = of_shell("base=$(base_of_changes) || exit 0; git diff -U0 $base -- 'grading/**.toml'")
    return "".join(
        f"{line[1:]}\n"
        for line in diff.splitlines()
        if line.startswith("+") and not line.startswith("+++")
    )


def is_new(entry, added):
    """Whether the entry, or a line of it, was added."""
    values = [value for value in entry.values() if isinstance(value, str)]
    return any(len(line) > 7 and line in added for value in values for line in value.splitlines())


def evenly(entries, most):
    """At most so many of the entries, from the whole list; always the same of the same list."""
    return (
        entries
        if len(entries) <= most
        else [entries[i * len(entries) // most] for i in range(most)]
    )


def changed_entries(entries, files_of, changed, added, fixed, most):
    """The entries that --changed chooses: a fixed part of `fixed` entries, and at most `most` of
    those that are new or that a changed file concerns. `files_of(entry)`: the paths from the root
    of the files that decide how it ends."""
    concerned = [
        entry for entry in entries if is_new(entry, added) or changed.intersection(files_of(entry))
    ]
    chosen = [*evenly(entries, fixed), *evenly(concerned, most)]
    return [
        entry for entry in entries if entry in chosen and not stamp_of(entry, files_of).exists()
    ]


def stamp_of(entry, files_of):
    """The file that is there if the entry has passed, as it is now and with these contents of its
    files."""
    inputs = hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode())
    for name in sorted(files_of(entry)):
        inputs.update(
            name.encode() + b"\0" + ((ROOT / name).read_bytes() if (ROOT / name).is_file() else b"")
        )
    return ROOT / ".cache" / "banks" / inputs.hexdigest()


def chosen(entries, arguments, files_of, fixed=3, most=12):
    """Those of the entries that --only and --changed choose."""
    entries = [
        entry
        for entry in entries
        if not arguments.only or entry.get("listed", entry["name"]) in arguments.only
    ]
    if not arguments.changed:
        return entries
    return changed_entries(entries, files_of, changed_files(), added_to_lists(), fixed, most)


def play(arguments, entries, attempt, files_of, at_a_time=1):
    """Prints a line for each entry: what is wrong with it, which `attempt` finds out. Ends the
    program."""

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
            if not wrong:
                stamp = stamp_of(entry, files_of)
                stamp.parent.mkdir(parents=True, exist_ok=True)
                stamp.touch()
            print(
                f"{entry['name'][:70]:70} {seconds:4.0f} s {wrong or 'as it should be'}", flush=True
            )
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{len(entries) - failed} {failed} 0\n")
    sys.exit(1 if failed else 0)
