#!/usr/bin/env python3
"""Makes mutants of every line of the reference solutions and runs each task's tests on them.

mutation/ makes them: a statement left out or moved, a condition widened, another operand, one more or
one less, a view copied, a strong pointer for a weak one. All mutants of a task are in one program,
STACK mutated, where FSDP_MUTANT chooses one. A mutant is killed when a test fails or the time is over.
One that nobody can tell from the solution stands in mutants.toml, with the reason. Results are kept in
build/default/mutants.json: a kill while the file is the same, a survivor while the tests are. Prints
the survivors and a line of counts for each task; exits with 1 if one survives, or is killed though listed.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import time

sys.path[:0] = [str(parent) for parent in pathlib.Path(__file__).resolve().parents[:2]]
from grader import bank, course, programs  # noqa: E402
from grader.course import BUILD, ROOT, Refused, tomllib  # noqa: E402
from mutation import switches  # noqa: E402

EQUIVALENT = ROOT / "grading" / "instruments" / "mutants.toml"
FIELDS = {"file", "function", "old", "new", "why"}
HELPERS = ROOT / "grading" / "instruments" / "mutation" / "mutant.h"
KEPT = BUILD / "mutants.json"
MUTATED = BUILD / "mutated"  # where the stack's files lie
KILLERS = 12  # tests that killed neighbours run first
SLOW_SECONDS = 30  # after which a kill counts only if its test passes without the mutant
SECONDS = 900  # of a whole run; a rank has less (common/testing/test_rank.h)
CPU_SECONDS = 10  # of one process, of which each rank is one: before it counts as an endless loop


def load_equivalent():
    entries = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    for entry in entries:
        if set(entry) != FIELDS or not all(entry.values()):
            raise Refused(f"{EQUIVALENT.name}, {entry.get('old')}: too few or too many fields")
    return entries


def place(mutant):
    """What an entry of mutants.toml says of it."""
    return mutant.file, mutant.function, mutant.old, mutant.new


def place_of(entry):
    return entry["file"], entry["function"], entry["old"], entry["new"]


def mutate(task, dropped=frozenset()):
    """The task's files with switches, name -> text; and their mutants."""
    sources = {name: (ROOT / "solutions" / task.folder / name).read_text() for name in task.files}
    members = [m for name, text in sources.items() for m in switches.members_in(text) if name.endswith(".h")]
    files, mutants = {HELPERS.name: HELPERS.read_text()}, []
    for name, text in sources.items():
        files[name], made = switches.mutate(name, text, len(mutants), dropped, members)
        mutants += made
    return files, mutants


def tests_there_are():
    """"SUITE.test" of every test."""
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.cpp"))
    return {f"{suite}.{name}" for suite, name in re.findall(r"TEST(?:_[PF])?\(\s*(\w+),\s*(\w+)", sources)}


class Results:
    """What is known from earlier runs: by the mutant's key, the test that killed it; "" and the code
    with which it survived; "does not compile"."""

    def __init__(self, fresh):
        self.known = json.loads(KEPT.read_text()) if KEPT.exists() and not fresh else {}
        tests = tests_there_are()
        self.known = {key: result for key, result in self.known.items()
                      if "." not in result["by"] or result["by"].partition("/")[0] in tests}
        self.dropped = {key for key, result in self.known.items() if result["by"] == "does not compile"}

    def keep(self, key, by, code=""):
        self.known[key] = {"by": by, "code": code}
        KEPT.with_suffix(".new").write_text(json.dumps(self.known, indent=0))
        KEPT.with_suffix(".new").replace(KEPT)

    def of(self, mutant, code):
        """The test, "" for a survivor, None if it has to run."""
        result = self.known.get(mutant.key)
        return result["by"] if result and (result["by"] or result["code"] == code) else None


def build(task, chosen, results, jobs):
    """The task's program with the chosen mutants; those that compile. Leaves out what is on the lines that
    the compiler names."""
    library = f"mutated_task{task.number}"
    targets = [library, f"{library}_tests"]  # the library alone while there are errors
    others = {mutant.key for mutant in mutate(task)[1]} - chosen
    while targets:
        files, mutants = mutate(task, results.dropped | others)
        compiled = [m for m in mutants if m.key in chosen - results.dropped]
        put(task, files)
        command = ["ninja", f"-j{jobs}", "-C", BUILD, "-k", "0", targets[0]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            targets.pop(0)
            continue
        wrong = wrong_mutants(done.stdout, task, files, compiled)
        if not wrong:
            raise Refused(f"{targets[0]} does not build:\n{(done.stdout + done.stderr)[-3000:]}")
        print(f"task {task.number}: {len(wrong)} mutants do not compile", flush=True)
        for mutant in wrong:
            results.dropped.add(mutant.key)
            results.keep(mutant.key, "does not compile")
    return BUILD / "bin" / f"{library}_tests", compiled


def put(task, files):
    """Touches only what is different: ninja goes by the time of a file."""
    for name, text in files.items():
        path = MUTATED / task.folder / name
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def wrong_mutants(log, task, files, mutants):
    """Those on the lines with errors; where such a line has none, all of the statement before it."""
    by_number = {mutant.number: mutant for mutant in mutants}
    folder = re.escape(f"{MUTATED.name}/{task.folder}/")
    wrong = set()
    for error in re.split(r"\n(?=\S*: In |\S*: At |In file )", log):
        if " error: " not in error:
            continue
        for name, line in re.findall(folder + r"(\w+\.\w+):(\d+):\d+: +(?:error|  required from)", error):
            lines = files[name].splitlines()
            numbers = re.findall(switches.MARK + r"(\d+)", lines[int(line) - 1])
            if numbers:
                wrong.add(by_number[int(numbers[0])])
                continue
            above = [n for text in lines[:int(line)] for n in re.findall(switches.MARK + r"(\d+)", text)]
            last = by_number[int(above[-1])] if above else None
            wrong |= {m for m in mutants if last and (m.file, m.statement) == (last.file, last.statement)}
    return wrong


def run(program, number, tests):
    """The first test that fails, "time" if there was none in time, else ""."""
    command = [program, "--gtest_fail_fast", "--gtest_brief=0", f"--gtest_filter={tests}"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, "FSDP_MUTANT": str(number)}, start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS)))
    try:
        text, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "time"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # its ranks, too
        except ProcessLookupError:
            pass
        process.wait()
    if process.returncode == 0:
        return ""
    failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", text, re.M)
    begun = re.findall(r"^\[ RUN      \] ([\w./]+)", text, re.M)
    return failed[0] if failed else begun[-1] if begun else "start"


class Runner:
    def __init__(self, program, without):
        self.program, self.without, self.killers = program, without, collections.Counter()

    def attempt(self, number):
        """What kills the mutant, or ""."""
        first = ":".join(test for test, _ in self.killers.most_common(KILLERS))
        started = time.monotonic()
        by = run(self.program, number, first) if first else ""
        by = by or run(self.program, number, f"*-{self.without}:{first}")
        slow = "." in by and time.monotonic() - started > SLOW_SECONDS
        if by and number == 0 or slow and run(self.program, 0, by):
            raise Refused(f"without a mutant, too: {by}; is the machine too busy?")
        if "." in by:
            self.killers[by] += 1
        return by


def run_task(task, wanted, results, equivalent, arguments):
    """Counts by what became of them, printing each survivor."""
    code = programs.code(programs.Program(task, "reference")) + arguments.without
    files, mutants = mutate(task)
    chosen = {m.key for m in mutants if wanted(m)}
    counts = collections.Counter(made=len(chosen), equivalent=0, killed=0, survived=0)
    known = {m.key: results.of(m, code) for m in mutants if m.key in chosen}
    left = [m for m in mutants if m.key in chosen and known[m.key] is None]
    if left:
        program, compiled = build(task, chosen, results, arguments.jobs)
        left = [m for m in compiled if m.key in {m.key for m in left}]
        runner = Runner(program, arguments.without)
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            plain = pool.submit(runner.attempt, 0)
            runs = {pool.submit(runner.attempt, mutant.number): mutant for mutant in left}
            try:
                for done in concurrent.futures.as_completed(runs):
                    results.keep(runs[done].key, done.result(), code)
                plain.result()
            finally:
                pool.shutdown(cancel_futures=True)
    for mutant in mutants:
        if mutant.key in chosen:
            counts[judge(task, mutant, results.of(mutant, code), place(mutant) in equivalent)] += 1
    return counts


def judge(task, mutant, by, listed):
    """What became of it; tells of a survivor, and of one that is killed though it is listed."""
    if by == "does not compile" or listed and not by:
        return by or "equivalent"
    if by and not listed:
        return "time" if by == "time" else "killed"
    print(f"{task.folder}/{mutant.file}:{mutant.line} in {mutant.function}"
          f"{': listed as equivalent, but killed by ' + by if by else ''}\n"
          f"  - {mutant.old}\n  + {mutant.new}", flush=True)
    return "contradicted" if by else "survived"


def check(equivalent):
    """The entries of mutants.toml that are no mutant."""
    made = {place(mutant) for task in course.tasks() for mutant in mutate(task)[1]}
    return [f"{EQUIVALENT.name}: {file}: there is no mutant of: {old} -> {new}"
            for file, _, old, new in sorted(equivalent - made)]


def told(counts):
    return (f"{counts['made']} made, {counts['does not compile']} of them do not compile, "
            f"{counts['killed']} killed, {counts['time']} stopped as hanging, "
            f"{counts['equivalent']} equivalent, {counts['survived']} survived"
            f"{', ' + str(counts['contradicted']) + ' listed but killed' if counts['contradicted'] else ''}")


def wanted_of(arguments):
    """(task, number) of the mutants that the arguments choose."""
    chosen = [(task, m) for task in course.tasks() for m in mutate(task)[1]
              if arguments.task in (None, task.number)
              and (arguments.only is None or arguments.only in f"{m.file} {m.function} {m.old} {m.new}")]
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        ends = [len(chosen) * (part % parts + i) // parts for i in (0, 1)]
        chosen = chosen[slice(*ends)]
    return {(task, m.number) for task, m in chosen}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", type=int, help="the mutants of one task")
    parser.add_argument("--only", metavar="TEXT", help="those of whose function, or lines, TEXT is a part")
    parser.add_argument("--part", metavar="I/N", help="the I-th of N parts of the mutants")
    parser.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")
    parser.add_argument("--without", default="", metavar="TESTS", help="run all but these: '*/W1:*/W4'")
    parser.add_argument("--jobs", type=int, default=2, help="how many run, or compile, at a time (default 2)")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--check", action="store_true", help="the form of mutants.toml; run nothing")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        equivalent = {place_of(entry) for entry in load_equivalent()}
        if arguments.check:
            wrong = check(equivalent)
            print("\n".join(wrong), end="\n" if wrong else "")
            sys.exit(bool(wrong))
        wanted, results = wanted_of(arguments), Results(arguments.fresh)
        total = collections.Counter()
        for task in course.tasks():
            if not any(t == task for t, _ in wanted):
                continue
            counts = run_task(task, lambda m: (task, m.number) in wanted, results, equivalent, arguments)
            print(f"task {task.number}: {told(counts)}, {time.monotonic() - started:.0f} s", flush=True)
            total += counts
    except Refused as refused:
        sys.exit(f"mutants: {refused}")
    print(f"all: {told(total)}, {time.monotonic() - started:.0f} s")
    bank.add_totals(arguments, total["killed"] + total["time"], total["survived"] + total["contradicted"])
    sys.exit(bool(total["survived"] + total["contradicted"]))


if __name__ == "__main__":
    main()
