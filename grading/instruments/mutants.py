#!/usr/bin/env python3
"""Makes mutants of every line of the reference solutions and runs each task's tests on them.

mutation/ makes them: a statement left out or moved, a condition widened, another operand, one more or
one less, a view copied, a strong pointer for a weak one. All mutants of a task are in one program,
built as a submission is, where FSDP_MUTANT chooses one. A mutant is killed when a test fails or the time is over.
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
import sys
import time

sys.path[:0] = [str(parent) for parent in pathlib.Path(__file__).resolve().parents[:2]]
from grader import bank, course, programs, whole_file  # noqa: E402
from grader.course import BUILD, ROOT, Refused  # noqa: E402
from grader.run import run as run_program  # noqa: E402
from mutation import switches  # noqa: E402

EQUIVALENT = ROOT / "grading" / "instruments" / "mutants.toml"
PLACE = ("file", "function", "old", "new")  # of a mutant and of its entry in mutants.toml
KEPT = BUILD / "mutants.json"
KILLERS = 12  # tests that killed neighbours run first
SLOW_SECONDS = 30  # after which a kill counts only if its test passes without the mutant
SECONDS = 900  # of a whole run; a rank has less (common/testing/test_rank.h)
CPU_SECONDS = 10  # of one process, of which each rank is one: before it counts as an endless loop


def place(mutant):
    return tuple(getattr(mutant, name) for name in PLACE)


def load_equivalent():
    """The places of those that are listed."""
    entries = bank.load(EQUIVALENT, "mutant", (*PLACE, "why"))
    if not all(all(entry.values()) for entry in entries):
        raise Refused(f"{EQUIVALENT.name}: a field is empty")
    return {tuple(entry[name] for name in PLACE) for entry in entries}


def mutate(task, dropped=frozenset()):
    """The task's files with switches, name -> text; and their mutants."""
    paths = [ROOT / "solutions" / path for path in task.files]
    sources = {path.name: path.read_text() for path in paths}
    members = [m for name, text in sources.items() for m in switches.members_in(text) if name.endswith(".h")]
    files, mutants = {}, []
    for name, text in sources.items():
        files[name], made = switches.mutate(name, text, len(mutants), dropped, members)
        mutants += made
    return files, mutants


class Results:
    """What is known from earlier runs: by the mutant's key, the test that killed it; "" and the code
    with which it survived; "does not compile"."""

    def __init__(self, fresh):
        self.known = json.loads(KEPT.read_text()) if KEPT.exists() and not fresh else {}
        tests = course.test_names()
        self.known = {key: result for key, result in self.known.items()
                      if "." not in result["by"] or result["by"].partition("/")[0] in tests}
        self.dropped = {key for key, result in self.known.items() if result["by"] == "does not compile"}

    def keep(self, key, by, code=""):
        self.known[key] = {"by": by, "code": code}
        whole_file.write(KEPT, json.dumps(self.known, indent=0))

    def of(self, mutant, code):
        """The test, "" for a survivor, None if it has to run."""
        result = self.known.get(mutant.key)
        return result["by"] if result and (result["by"] or result["code"] == code) else None


def build(task, chosen, results, job):
    """The task's program with the chosen mutants, until the job ends; those that compile. Leaves out what
    is on the lines that the compiler names."""
    program = programs.Program(task, "reference")
    binary = BUILD / "bin" / program.target
    others = {mutant.key for mutant in mutate(task)[1]} - chosen
    with programs.place_to_build() as place:
        binary.unlink(missing_ok=True)
        # The library alone while there are errors.
        for target in (f"{program.stack}_task{task.number}", program.target):
            while True:
                files, mutants = mutate(task, results.dropped | others)
                compiled = [m for m in mutants if m.key in chosen - results.dropped]
                programs.put_in({task.path_of(name): text.encode() for name, text in files.items()})
                log = programs.ninja([target], place)
                wrong = wrong_mutants(log, task, files, compiled)
                if not wrong:
                    break
                print(f"task {task.number}: {len(wrong)} mutants do not compile", flush=True)
                for mutant in wrong:
                    results.dropped.add(mutant.key)
                    results.keep(mutant.key, "does not compile")
        if not binary.exists():
            raise Refused(f"{program.target} does not build:\n{log[-3000:]}")
        return programs.keep_program(binary, job), compiled


def wrong_mutants(log, task, files, mutants):
    """Those on the lines with errors; where such a line has none, all of the statement before it."""
    by_number = {mutant.number: mutant for mutant in mutants}
    folder = f"{programs.GRADED.name}/(?:extensions/)?{task.folder}/"
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
    command = ["prlimit", f"--cpu={CPU_SECONDS}", program]
    command += ["--gtest_fail_fast", "--gtest_brief=0", f"--gtest_filter={tests}"]
    status, text = run_program(command, {**os.environ, "FSDP_MUTANT": str(number)}, SECONDS)
    if not status:
        return "time" if status is None else ""
    failed = re.findall(r"^\[  FAILED  \] ([\w./]+)", text, re.M)
    begun = re.findall(r"^\[ RUN      \] ([\w./]+)", text, re.M)
    return failed[0] if failed else begun[-1] if begun else "start"


class Runner:
    def __init__(self, program):
        self.program, self.killers = program, collections.Counter()

    def attempt(self, number):
        """What kills the mutant, or ""."""
        first = ":".join(test for test, _ in self.killers.most_common(KILLERS))
        started = time.monotonic()
        by = run(self.program, number, first) if first else ""
        by = by or run(self.program, number, f"*-{first}")
        slow = "." in by and time.monotonic() - started > SLOW_SECONDS
        if by and number == 0 or slow and run(self.program, 0, by):
            raise Refused(f"without a mutant, too: {by}; is the machine too busy?")
        if "." in by:
            self.killers[by] += 1
        return by


def run_all(program, mutants, code, results, jobs):
    runner = Runner(program)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        plain = pool.submit(runner.attempt, 0)
        runs = {pool.submit(runner.attempt, mutant.number): mutant for mutant in mutants}
        try:
            for done in concurrent.futures.as_completed(runs):
                results.keep(runs[done].key, done.result(), code)
            plain.result()
        finally:
            pool.shutdown(cancel_futures=True)


def run_task(task, results, equivalent, arguments):
    """Counts by what became of the task's mutants, printing each survivor."""
    code = programs.code(programs.Program(task, "reference"))
    mutants = [m for m in mutate(task)[1] if (arguments.only or "") in f"{m.file} {m.function} {m.old} {m.new}"]
    left = {m.key for m in mutants if results.of(m, code) is None}
    if left:
        with programs.new_job() as job:
            program, compiled = build(task, {m.key for m in mutants}, results, job)
            run_all(program, [m for m in compiled if m.key in left], code, results, arguments.jobs)
    counts = collections.Counter(made=len(mutants), equivalent=0, killed=0, survived=0)
    counts.update(judge(task, m, results.of(m, code), place(m) in equivalent) for m in mutants)
    return counts


def judge(task, mutant, by, listed):
    """What became of it; tells of a survivor, and of one that is killed though it is listed."""
    if by == "does not compile" or listed and not by:
        return by or "equivalent"
    if by and not listed:
        return "time" if by == "time" else "killed"
    print(f"task {task.number}: {mutant.file}:{mutant.line} in {mutant.function}"
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", type=int, help="the mutants of one task")
    parser.add_argument("--only", metavar="TEXT", help="those of whose function, or lines, TEXT is a part")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at a time (default 2)")
    parser.add_argument("--fresh", action="store_true", help="run again what was run before")
    parser.add_argument("--check", action="store_true", help="the form of mutants.toml; run nothing")
    arguments = parser.parse_args()
    started = time.monotonic()
    total = collections.Counter()
    try:
        equivalent = load_equivalent()
        if arguments.check:
            sys.exit("\n".join(check(equivalent)) or 0)
        results = Results(arguments.fresh)
        for task in course.tasks():
            if arguments.task in (None, task.number):
                counts = run_task(task, results, equivalent, arguments)
                print(f"task {task.number}: {told(counts)}, {time.monotonic() - started:.0f} s", flush=True)
                total += counts
    except Refused as refused:
        sys.exit(f"mutants: {refused}")
    print(f"all: {told(total)}, {time.monotonic() - started:.0f} s")
    sys.exit(bool(total["survived"] + total["contradicted"]))


if __name__ == "__main__":
    main()
