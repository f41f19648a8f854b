"""Functions for the programs that check the entries of a bank, which is a list of examples in TOML:
faults.py, submissions.py and course/samples.py."""

import argparse
import concurrent.futures
import hashlib
import json
import subprocess
import sys
import time

from grader.course import ROOT, Refused, tomllib


def load(file):
    """Returns the entries of a TOML file of grading/: its tables, each as a dict with its name in
    the field `name`."""
    return [
        {"name": name, **entry}
        for name, entry in tomllib.loads((ROOT / "grading" / file).read_text()).items()
    ]


def parser(description):
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    made.add_argument("--only", nargs="+", metavar="NAME", help="only entries with these names")
    made.add_argument(
        "--changed",
        action="store_true",
        help="only entries that depend on files changed since origin/main (on main: in the last "
             "commit), and "
        "a small fixed part; no entry that has passed with the same files",
    )
    made.add_argument("--totals", metavar="FILE", help="add a line 'PASSED FAILED SKIPPED' to FILE")
    return made


def of_shell(command):
    """Returns what a shell command prints. The command may call the functions of
    scripts/build.sh."""
    script = f'root=$0; source "$0/scripts/build.sh"; cd "$0"; {command}'
    return subprocess.run(
        ["bash", "-c", script, ROOT], capture_output=True, text=True, check=True
    ).stdout


def changed_files():
    """Returns the paths of the files that have changed, as changed_since_base of scripts/build.sh
    finds them."""
    return set(of_shell("changed_since_base").splitlines())


def added_to_lists():
    """Returns the lines that were added to the TOML files of grading/ since the commit that
    base_of_changes of scripts/build.sh names, as one text."""
    diff = of_shell("base=$(base_of_changes) || exit 0; git diff -U0 $base -- 'grading/**.toml'")
    return "".join(
        f"{line[1:]}\n"
        for line in diff.splitlines()
        if line.startswith("+") and not line.startswith("+++")
    )


def is_new(entry, added):
    """Returns whether a line of one of the entry's texts is among the lines `added` to the banks.
    Lines of up to 7 characters do not count."""
    values = [value for value in entry.values() if isinstance(value, str)]
    return any(len(line) > 7 and line in added for value in values for line in value.splitlines())


def evenly(entries, most):
    """Returns at most `most` of the entries, evenly spread over the list. The same list gives the
    same entries."""
    return (
        entries
        if len(entries) <= most
        else [entries[i * len(entries) // most] for i in range(most)]
    )


def changed_entries(entries, files_of, changed, added, fixed, most):
    """Returns the entries that --changed selects: `fixed` entries, which are always the same, and
    at most `most` of the entries that are new or depend on a changed file. An entry that has passed
    with the present files is left out. `files_of(entry)` returns the files that decide whether the
    entry passes, as paths from the repository's root. `changed`: the changed files; `added`: see
    is_new()."""
    concerned = [
        entry for entry in entries if is_new(entry, added) or changed.intersection(files_of(entry))
    ]
    chosen = [*evenly(entries, fixed), *evenly(concerned, most)]
    return [
        entry for entry in entries if entry in chosen and not stamp_of(entry, files_of).exists()
    ]


def stamp_of(entry, files_of):
    """Returns the path of a stamp: a file that exists if the entry, as it is now, has passed with
    the present contents of its files."""
    inputs = hashlib.sha256(json.dumps(entry, sort_keys=True, default=str).encode())
    for name in sorted(files_of(entry)):
        inputs.update(
            name.encode() + b"\0" + ((ROOT / name).read_bytes() if (ROOT / name).is_file() else b"")
        )
    return ROOT / ".cache" / "banks" / inputs.hexdigest()


def chosen(entries, arguments, files_of, fixed=3, most=12):
    """Returns the entries of a bank that the options --only and --changed select; without these
    options, all entries. A bank is a list of examples in TOML."""
    entries = [
        entry
        for entry in entries
        if not arguments.only or entry.get("listed", entry["name"]) in arguments.only
    ]
    if not arguments.changed:
        return entries
    return changed_entries(entries, files_of, changed_files(), added_to_lists(), fixed, most)


def play(arguments, entries, attempt, files_of, at_a_time=1):
    """Calls attempt(entry) for each entry, which returns what is wrong with the entry or "". Prints
    a line for each entry, and stamps those that have passed. Then ends this program, with status 1
    if an entry has failed."""

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
