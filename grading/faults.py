#!/usr/bin/env python3
"""Puts each fault of grading/faults/taskN.toml into the reference solution and runs the task's tests.

A fault is caught when its test fails on some number of ranks and says its message. What the tests
printed is kept in build/default/faulty/results.jsonl, so a run that was broken off goes on where it
stopped; what has changed since is run again. Prints the matrix, one line for each fault: problem,
name, numbers of ranks on which its test fails, how many other tests fail, the test. Exits with 1 if a
fault survives. grading/faults/README.md says more.
"""

import argparse
import functools
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import time

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BANK = ROOT / "grading" / "faults"
MATRIX = BANK / "MATRIX.md"
BUILD = ROOT / "build" / "default"
RESULTS = BUILD / "faulty" / "results.jsonl"
WIDTH = 100
FIELDS = {"name", "problem", "file", "old", "new", "test", "message", "mistake"}


class Refused(Exception):
    """A fault that can't be put in."""


def load():
    faults = []
    for path in sorted(BANK.glob("task*.toml")):
        task = int(path.stem.removeprefix("task"))
        for fault in tomllib.loads(path.read_text())["fault"]:
            if set(fault) != FIELDS:
                wrong = ", ".join(sorted(set(fault) ^ FIELDS))
                raise Refused(f"{path.name}, {fault.get('name')}: too few or too many of: {wrong}")
            faults.append({**fault, "task": task})
    names = [fault["name"] for fault in faults]
    for name in set(names):
        if names.count(name) > 1:
            raise Refused(f"two faults are called {name}")
    return faults


def solution(task):
    return next((ROOT / "solutions").glob(f"task{task}_*"))


def tests(task):
    return next((ROOT / "tests").glob(f"task{task}_*"))


def faulty_text(fault):
    path = solution(fault["task"]) / fault["file"]
    text = path.read_text()
    count = text.count(fault["old"])
    if count != 1:
        raise Refused(f"fault {fault['name']}: its old line is {count} times in {path.name}")
    return text.replace(fault["old"], fault["new"])


@functools.cache
def code_of(task):
    """A hash of what the task's tests are made of, without the fault."""
    folders = [solution(number) for number in range(1, task + 1)]
    state = hashlib.sha256()
    for folder in [*folders, tests(task), ROOT / "common"]:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".cpp", ".h"):
                state.update(path.name.encode() + b"\0" + path.read_bytes())
    return state.hexdigest()


def key(fault):
    """Changes when the change of code does, or the code around it; not with what is expected."""
    parts = [code_of(fault["task"]), fault["file"], fault["old"], fault["new"]]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def build(target):
    done = subprocess.run([ROOT / "fsdp", "build", target], capture_output=True, text=True)
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
    environment = {**os.environ, "FSDP_ROOT": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if not out.exists():
        raise Refused(f"check {task} wrote no results:\n{done.stderr[-2000:]}")
    return json.loads(out.read_text())["tests"]


def run(fault):
    started = time.monotonic()
    put_in(fault)
    build(f"faulty_task{fault['task']}_tests")
    results = tests_of(fault["task"])
    red = {}  # what each test that fails prints, by the name of the test and the ranks
    for test in results:
        if test["outcome"] != "passed":
            name, _, ranks = test["name"].partition("/")
            red.setdefault(f"{test['suite']}.{name}", {})[ranks] = test["text"][:30000]
    seconds = round(time.monotonic() - started, 1)
    return {"name": fault["name"], "key": key(fault), "red": red, "seconds": seconds}


def kept():
    """Key -> result, of the runs before."""
    if not RESULTS.exists():
        return {}
    lines = RESULTS.read_text().splitlines()
    return {result["key"]: result for result in map(json.loads, lines)}


def told(fault, result):
    """Whether the fault's test fails with its message."""
    texts = result["red"].get(fault["test"], {}).values()
    return any(fault["message"] in text for text in texts)


def ranks_of(texts):
    """{"W1": ..., "W2": ..., "W4": ...} as "W1 2 4", and "" for a test of one process."""
    numbers = sorted(ranks.removeprefix("W") for ranks in texts if ranks)
    return "W" + "".join(numbers) if numbers else ""


def shortened(text, width):
    return text if len(text) <= width else text[: width - 3] + "..."


def row(fault, result):
    texts = result["red"].get(fault["test"])
    others = len(result["red"]) - (texts is not None)
    head = f"{fault['problem']}  {fault['name']:32} "
    if told(fault, result):
        name = fault["test"].partition(".")[2]
        return shortened(f"{head}{ranks_of(texts):6}{'+' + str(others):5}{name}", WIDTH)
    if texts is not None:
        why = f"its test fails, but does not say: {fault['message']}"
    elif result["red"]:
        why = f"red, but not {fault['test']}: {', '.join(sorted(result['red']))}"
    else:
        why = f"no test of task {fault['task']} fails"
    return textwrap.fill(f"{head}SURVIVES: {why}", WIDTH, subsequent_indent="     ")


def table(faults, results):
    """The matrix as Markdown."""
    lines = [
        "# What catches which mistake",
        "",
        f"The {len(faults)} faults of the bank, made by `grading/faults.py --table`. W: the numbers of",
        "ranks on which the test fails; the last column: how many other tests fail.",
        "",
        "| Problem | Mistake | Caught by | which says | others |",
        "|---|---|---|---|---|",
    ]
    for fault in faults:
        texts = results[fault["name"]]["red"].get(fault["test"], {})
        sentence = fault["test"].partition(".")[2].replace("_", " ")
        where = f" ({ranks_of(texts)})" if ranks_of(texts) else ""
        others = len(results[fault["name"]]["red"]) - 1
        cells = [fault["problem"], fault["mistake"], sentence + where, f"`{fault['message']}`"]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} | {others} |")
    return "\n".join(lines) + "\n"


def check(faults):
    """What is wrong with the bank without running it."""
    wrong = []
    matrix = MATRIX.read_text() if MATRIX.exists() else ""
    for fault in faults:
        try:
            if fault["old"] == fault["new"] or not fault["old"].strip():
                wrong.append(f"fault {fault['name']} changes nothing")
            faulty_text(fault)
        except Refused as refused:
            wrong.append(str(refused))
        sources = "".join(path.read_text() for path in tests(fault["task"]).glob("*.cpp"))
        suite, _, name = fault["test"].partition(".")
        if f"({suite}, {name})" not in " ".join(sources.split()):
            wrong.append(f"fault {fault['name']}: there is no test {fault['test']}")
        if not fault["problem"].startswith(f"{fault['task']}."):
            wrong.append(f"fault {fault['name']}: problem {fault['problem']} is in another file")
        row = f"| {fault['problem']} | {fault['mistake'].replace('|', chr(92) + '|')} |"
        if matrix and row not in matrix:
            wrong.append(f"fault {fault['name']} is not in MATRIX.md; run grading/faults.py --table")
    return wrong


def chosen(faults, arguments):
    if arguments.task:
        faults = [fault for fault in faults if fault["task"] == arguments.task]
    if arguments.only:
        faults = [fault for fault in faults if fault["name"] in arguments.only]
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        faults = faults[part % parts :: parts]
    return faults


def run_all(faults, arguments):
    """Name -> result, running what has no result yet; prints a row as each is known."""
    known = {} if arguments.fresh else kept()
    results = {}
    build("check")
    for fault in faults:
        result = known.get(key(fault))
        if result is None:
            try:
                result = run(fault)
            except Refused as refused:
                print(f"{fault['problem']}  {fault['name']:32} REFUSED: {refused}", flush=True)
                continue
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(result) + "\n")
        results[fault["name"]] = result
        print(row(fault, result), flush=True)
        if arguments.show:
            for test, texts in result["red"].items():
                for ranks, text in texts.items():
                    print(f"--- {test}/{ranks}\n{text}")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", type=int, help="the faults of one task")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults")
    parser.add_argument("--part", metavar="I/N", help="every N-th fault, from the I-th on")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--show", action="store_true", help="print what the failing tests print")
    parser.add_argument("--table", action="store_true", help="write grading/faults/MATRIX.md")
    parser.add_argument("--check", action="store_true", help="the form of the bank; runs nothing")
    parser.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        faults = load()
        if arguments.check:
            wrong = check(faults)
            print("\n".join(wrong), end="\n" if wrong else "")
            sys.exit(1 if wrong else 0)
        faults = chosen(faults, arguments)
        results = run_all(faults, arguments)
    except Refused as refused:
        sys.exit(f"faults: {refused}")
    caught = sum(f["name"] in results and told(f, results[f["name"]]) for f in faults)
    survived = len(faults) - caught
    seconds = round(time.monotonic() - started)
    print(f"{len(faults)} faults, {caught} caught, {survived} survived, {seconds} s")
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{caught} {survived} 0\n")
    if arguments.table and len(results) == len(faults):
        MATRIX.write_text(table(faults, results))
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
