#!/usr/bin/env python3
"""Puts each fault of faults/taskN.toml into the reference solution and runs the task's tests.

Each fault is built and run as a submission is, with the usual cases of the tests. It is caught when
its test fails on some number of ranks and says its message, and costs points of its task. Results
are kept under build/default/grades, so a run that was broken off goes on where it stopped; what has
changed since is run again. Prints the matrix, one line for each fault: problem, name, points of its
task, numbers of ranks on which its test fails, how many other tests fail, the test. Exits with 1 if
a fault survives. grading/faults/README.md says more.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import sys
import textwrap
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from grader import bank, changed, course, grade  # noqa: E402
from grader.course import ROOT, Refused  # noqa: E402

BANK = ROOT / "grading" / "faults"
MATRIX = BANK / "MATRIX.md"
FIRST = BANK / "FIRST_FAILURES.md"
JOBS = 2
WIDTH = 100
FIELDS = {"name", "problem", "file", "old", "new", "test", "message", "mistake"}
LEADS_TO = ("nowhere", "the place", "the cause")  # the failure that a student sees first


def load():
    faults = [{**fault, "task": int(path.stem.removeprefix("task"))}
              for path in sorted(BANK.glob("task*.toml"))
              for fault in bank.load(path, "fault", FIELDS, {"old_2", "new_2", "leads_to"})]
    for name, count in collections.Counter(fault["name"] for fault in faults).items():
        if count > 1:
            raise Refused(f"two faults are called {name}")
    return faults


def task_of(fault):
    return course.tasks()[fault["task"] - 1]


def path_of(fault):
    return task_of(fault).path_of(fault["file"])


def is_of_an_extension(fault):
    return fault["problem"] in [problem.number for problem in task_of(fault).extensions]


def run(fault, fresh):
    """The fault as the grader sees it: its task's tests over the reference ones before it. A fault of the
    task has to be seen without the extensions, and one of an extension by their tests."""
    result = changed.result(path_of(fault), fault, fault["task"], fresh=fresh)
    asked = [problem for problem in result.problems.values()
             if problem["extension"] == is_of_an_extension(fault)]
    numbers = {problem["number"] for problem in asked}
    result.tests = [test for test in result.tests if test["problem"] in numbers]
    shown = [problem["explanation"] for problem in asked if problem["failed"]]
    return {"red": changed.failures(result), "first": shown[0] if shown else "",
            "points": sum(problem["points"] for problem in asked),
            "of": sum(problem["possible"] for problem in asked)}


def told(fault, result):
    """Whether the fault's test fails with its message, and costs points."""
    texts = result["red"].get(fault["test"], {}).values()
    return any(fault["message"] in text for text in texts) and result["points"] < result["of"]


def count_told(faults, results):
    return sum(f["name"] in results and told(f, results[f["name"]]) for f in faults)


def ranks_of(texts):
    """Such as "W124"; "" for a test of one process."""
    return f"W{changed.ranks_of(texts)}".rstrip("W")


def row(fault, result):
    texts = result["red"].get(fault["test"])
    others = len(result["red"]) - (texts is not None)
    head = f"{fault['problem']}  {fault['name']:32} "
    if told(fault, result):
        name = fault["test"].partition(".")[2]
        points = f"{result['points']:4.1f} of {result['of']:g}"
        return bank.shortened(f"{head}{points:12}{ranks_of(texts):6}{'+' + str(others):5}{name}", WIDTH)
    if texts is not None:
        why = f"its test fails, but does not say: {fault['message']}"
    elif result["red"]:
        why = f"red, but not {fault['test']}: {', '.join(sorted(result['red']))}"
    else:
        why = f"no test of task {fault['task']} fails"
    return textwrap.fill(f"{head}SURVIVES: {why}", WIDTH, subsequent_indent="     ")


def cells(*texts):
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def key_of_row(fault):
    """With what the fault's row in the matrix begins."""
    return cells(fault["problem"], fault["mistake"])


def table(faults, results, old):
    """The matrix as Markdown. A fault that was not run now keeps its row of the matrix `old`."""
    kept = {fault["name"]: [line for line in old.splitlines() if line.startswith(key_of_row(fault))]
            for fault in faults}
    lines = [
        "# What catches which mistake",
        "",
        f"The {len(faults)} faults of the bank, made by `grading/faults.py --table`. W: the numbers of",
        "ranks on which the test fails; others: how many other tests fail; points: what `./fsdp check`",
        "gives for the task, over the reference solutions of the tasks before it.",
        "",
        "| Problem | Mistake | Caught by | which says | others | points |",
        "|---|---|---|---|---|---|",
    ]
    for fault in faults:
        if fault["name"] not in results:
            lines += kept[fault["name"]]
            continue
        texts = results[fault["name"]]["red"].get(fault["test"], {})
        sentence = fault["test"].partition(".")[2].replace("_", " ")
        where = f" ({ranks_of(texts)})" if ranks_of(texts) else ""
        others = len(results[fault["name"]]["red"]) - 1
        points = f"{results[fault['name']]['points']:.1f} of {results[fault['name']]['of']:g}"
        caught_by = cells(sentence + where, f"`{fault['message']}`", str(others), points)
        lines.append(key_of_row(fault) + caught_by[1:])
    return "\n".join(lines) + "\n"


def first_failures(faults, results, old):
    """What a student sees first of each fault, and where it led somebody who read it, as Markdown. A fault
    that was not run now keeps its row of `old`."""
    read = [LEADS_TO.index(fault["leads_to"]) for fault in faults if "leads_to" in fault]
    lines = [
        "# What a student sees first",
        "",
        "For each fault of the bank the test whose failure `./fsdp check` shows, and where it leads:",
        "to the cause (2), to the place (1), or nowhere (0). Somebody read each failure without knowing",
        "the fault's line and wrote the judgement into the bank as `leads_to`. The tests are found by",
        "`grading/faults.py --table`; `--first` prints the failures in full.",
        "",
        f"{len(read)} of {len(faults)} were read; the mean is {sum(read) / max(len(read), 1):.2f}.",
        "",
        "| Problem | Mistake | Test that is shown | Leads to |",
        "|---|---|---|---|",
    ]
    for fault in faults:
        if fault["name"] not in results:
            lines += [line for line in old.splitlines() if line.startswith(key_of_row(fault))]
            continue
        test = results[fault["name"]]["first"].partition("\n")[0]
        lines.append(key_of_row(fault) + cells(f"`{test}`", fault.get("leads_to", ""))[1:])
    return "\n".join(lines) + "\n"


def check(faults):
    """What is wrong with the bank without running it."""
    wrong = []
    matrix = MATRIX.read_text() if MATRIX.exists() else ""
    tests = {task.number: course.test_names(task.folder) for task in course.tasks()}
    for fault in faults:
        try:
            changed.solutions(path_of(fault), fault)
        except Refused as refused:
            wrong.append(str(refused))
        if fault["test"] not in tests[fault["task"]]:
            wrong.append(f"fault {fault['name']}: there is no test {fault['test']}")
        if not fault["problem"].startswith(f"{fault['task']}."):
            wrong.append(f"fault {fault['name']}: problem {fault['problem']} is in another file")
        if matrix and key_of_row(fault) not in matrix:
            wrong.append(f"fault {fault['name']} is not in MATRIX.md; run grading/faults.py --table")
    return wrong


def run_all(faults, fresh=False, tell=lambda fault, result: None):
    """Name -> result, running what has no result yet; prints a row as each is known, and tells it."""
    results = {}
    grade.prepare(sorted({fault["task"] for fault in faults}))

    def attempt(fault):
        try:
            return fault, run(fault, fresh), ""
        except Refused as refused:
            return fault, None, str(refused)

    # The next one is compiled while the tests of the one before run.
    pool = concurrent.futures.ThreadPoolExecutor(JOBS)
    for fault, result, refused in pool.map(attempt, faults):
        if refused:
            print(f"{fault['problem']}  {fault['name']:32} REFUSED: {refused}", flush=True)
            continue
        results[fault["name"]] = result
        print(row(fault, result), flush=True)
        tell(fault, result)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", type=int, help="the faults of one task")
    bank.add_options(parser, "fault")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--show", action="store_true", help="print what the failing tests print")
    parser.add_argument("--first", action="store_true", help="print what a student sees first")
    parser.add_argument("--table", action="store_true", help="write the rows of MATRIX.md and FIRST_FAILURES.md")
    parser.add_argument("--check", action="store_true", help="the form of the bank; runs nothing")
    arguments = parser.parse_args()
    started = time.monotonic()

    def tell(fault, result):
        if arguments.first:
            print(f"{fault['mistake']}\n{result['first']}\n")
        for test, texts in result["red"].items() if arguments.show else ():
            for ranks, text in texts.items():
                print(f"--- {test}/{ranks}\n{text}")

    try:
        faults = load()
        if arguments.check:
            sys.exit("\n".join(check(faults)) or 0)
        if arguments.task:
            faults = [fault for fault in faults if fault["task"] == arguments.task]
        faults = bank.chosen(faults, arguments)
        results = run_all(faults, arguments.fresh, tell)
    except Refused as refused:
        sys.exit(f"faults: {refused}")
    caught = count_told(faults, results)
    survived = len(faults) - caught
    seconds = round(time.monotonic() - started)
    print(f"{len(faults)} faults, {caught} caught, {survived} survived, {seconds} s")
    bank.add_totals(arguments, caught, survived)
    if arguments.table and len(results) == len(faults):
        MATRIX.write_text(table(load(), results, MATRIX.read_text()))
        FIRST.write_text(first_failures(load(), results, FIRST.read_text()))
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
