#!/usr/bin/env python3
"""Puts each fault of grading/faults/taskN.toml into the reference solution and runs the task's tests.

A fault is one line: `old` (found exactly once in `file`), replaced by `new`. It is caught when `test`
fails on some number of ranks and its text contains `message`. Results are kept in
build/default/faulty/results.jsonl, so a run that was broken off goes on where it stopped; what has
changed since is run again. Prints the matrix; exits with 1 if a fault survives.
"""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import time

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "default"
RESULTS = BUILD / "faulty" / "results.jsonl"


class Refused(Exception):
    """A fault that can't be put in."""


def load():
    faults = []
    for path in sorted((ROOT / "grading" / "faults").glob("task*.toml")):
        task = int(path.stem.removeprefix("task"))
        for fault in tomllib.loads(path.read_text())["fault"]:
            faults.append({**fault, "task": task})
    names = [fault["name"] for fault in faults]
    for name in set(names):
        if names.count(name) > 1:
            raise Refused(f"two faults are called {name}")
    return faults


def solution(task):
    return next((ROOT / "solutions").glob(f"task{task}_*"))


def faulty_text(fault):
    path = solution(fault["task"]) / fault["file"]
    text = path.read_text()
    if text.count(fault["old"]) != 1:
        raise Refused(
            f"fault {fault['name']}: its old line is {text.count(fault['old'])} times in {path.name}"
        )
    return text.replace(fault["old"], fault["new"])


def key(fault):
    """Changes when the fault, the solution or the tests do."""
    state = hashlib.sha256(json.dumps(fault, sort_keys=True).encode())
    folders = [solution(fault["task"]), *(ROOT / "tests").glob(f"task{fault['task']}_*")]
    for folder in [*folders, ROOT / "common" / "testing"]:
        for path in sorted(folder.glob("*")):
            state.update(path.read_bytes())
    return state.hexdigest()


def build(target):
    command = [ROOT / "fsdp", "build", target]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{target} does not build:\n{done.stderr[-2000:]}")


def put_in(fault):
    """Writes the task's sources, one of them with the fault, and touches only what is different."""
    folder = BUILD / "faulty" / solution(fault["task"]).name
    for path in solution(fault["task"]).glob("*.cpp"):
        text = faulty_text(fault) if path.name == fault["file"] else path.read_text()
        copy = folder / path.name
        if not copy.exists() or copy.read_text() != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)


def tests_of(task):
    """Every result of the task's tests over the faulty solution."""
    out = BUILD / "faulty" / "tests.json"
    out.unlink(missing_ok=True)
    command = [BUILD / "bin" / "check", str(task), "--stacks", "faulty", "--json", out]
    subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    return json.loads(out.read_text())["tests"]


def run(fault):
    started = time.monotonic()
    put_in(fault)
    build(f"faulty_task{fault['task']}_tests")
    results = tests_of(fault["task"])
    red, told = [], False
    others = set()
    for test in results:
        if test["outcome"] == "passed":
            continue
        name = f"{test['suite']}.{test['name']}"
        base, _, ranks = name.partition("/")
        if base == fault["test"]:
            red.append(ranks)
            told = told or fault["message"] in test["text"]
        else:
            others.add(base)
    if fault["test"] not in {f"{t['suite']}.{t['name']}".partition("/")[0] for t in results}:
        raise Refused(f"fault {fault['name']}: there is no test {fault['test']}")
    return {
        "name": fault["name"],
        "key": key(fault),
        "caught": bool(red) and told,
        "red": red,
        "told": told,
        "others": sorted(others),
        "seconds": round(time.monotonic() - started, 1),
    }


def kept():
    """Key -> result, of the runs before."""
    if not RESULTS.exists():
        return {}
    lines = RESULTS.read_text().splitlines()
    return {result["key"]: result for result in map(json.loads, lines)}


def row(fault, result):
    if result["caught"]:
        ranks = " ".join(result["red"])
        text = f"caught by {fault['test']}" + (f" {ranks}" if ranks else "")
    elif result["red"]:
        text = f"SURVIVES: {fault['test']} fails, but does not say: {fault['message']}"
    elif result["others"]:
        text = f"SURVIVES {fault['test']}; red: {', '.join(result['others'])}"
    else:
        text = f"SURVIVES: no test of task {fault['task']} fails"
    also = f", and {len(result['others'])} more" if result["caught"] else ""
    return f"{fault['problem']}  {fault['name']:34} {text}{also}"


def chosen(faults, arguments):
    if arguments.task:
        faults = [fault for fault in faults if fault["task"] == arguments.task]
    if arguments.only:
        faults = [fault for fault in faults if fault["name"] in arguments.only]
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        faults = faults[part % parts :: parts]
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", type=int, help="the faults of one task")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults")
    parser.add_argument("--part", metavar="I/N", help="every N-th fault, from the I-th on")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    arguments = parser.parse_args()
    survived = count = 0
    try:
        faults = chosen(load(), arguments)
        build("check")
        results = {} if arguments.fresh else kept()
        for fault in faults:
            result = results.get(key(fault))
            if result is None:
                result = run(fault)
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(result) + "\n")
            print(row(fault, result), flush=True)
            count += 1
            survived += not result["caught"]
    except Refused as refused:
        sys.exit(f"faults: {refused}")
    print(f"{count} faults, {count - survived} caught, {survived} survived")
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
