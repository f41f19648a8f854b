#!/usr/bin/env python3
"""A term as `./fsdp check` sees it: for each k, tasks/ holds the solutions of tasks 1 to k-1 and the
rest is not written yet. Compares what check says with what it should: the points of tasks 1 to k-1,
none failed, and every test of tasks k to 7 not started. tasks/ is put back at the end.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from course import skeletons  # noqa: E402

ROOT = skeletons.ROOT


def write_blank():
    """tasks/ as at first; touches only what is different."""
    for name, text in skeletons.generated().items():
        path = ROOT / name
        if path.read_text() != text:
            path.write_text(text)


def write_solution(folder):
    for path in (ROOT / "solutions" / folder).glob("*.[hc]*"):
        shutil.copyfile(path, ROOT / "tasks" / folder / path.name)


def check(base):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [ROOT / "fsdp", "check", "--base", base, "--json", out.name]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, json.loads(pathlib.Path(out.name).read_text())


def wrong(tasks, k, status, result):
    """What is not as it should be when tasks 1 to k-1 are written; empty if nothing is."""
    expected = sum(p["points"] for t in tasks[: k - 1] for p in t["problem"])
    found = []
    if result["points"] != expected:
        found.append(f"{result['points']} points, not {expected}")
    for test in result["tests"]:
        written = int(test["problem"][0]) < k
        outcome = "passed" if written else "not started"
        if test["outcome"] != outcome:
            found.append(f"{test['suite']}.{test['name']} {test['outcome']}, not {outcome}")
    if (status == 0) != (k > len(tasks)):
        found.append(f"exit status {status}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="reference", choices=("reference", "mine"))
    arguments = parser.parse_args()
    tasks = skeletons.tomllib.loads((ROOT / "course.toml").read_text())["task"]
    if list(skeletons.differences(skeletons.generated())):
        sys.exit("stages: tasks/ is not as at first; this would overwrite it")
    failed = False
    try:
        for k in range(1, len(tasks) + 2):
            if k > 1:
                write_solution(f"task{k - 1}_{tasks[k - 2]['name']}")
            status, result = check(arguments.base)
            found = wrong(tasks, k, status, result)
            failed = failed or bool(found)
            written = f"tasks 1 to {k - 1} written" if k > 1 else "nothing written"
            counts = [t["outcome"] for t in result["tests"]]
            print(
                f"{written:24} {result['points']:5.1f} of {result['possible']:.0f} points, "
                f"{counts.count('passed')} passed, {counts.count('failed')} failed, "
                f"{counts.count('not started')} not started: {'wrong' if found else 'ok'}",
                flush=True,
            )
            for line in found[:5]:
                print(f"    {line}")
    finally:
        write_blank()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
