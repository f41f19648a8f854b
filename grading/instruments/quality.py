#!/usr/bin/env python3
"""Measures the grader and writes grading/instruments/QUALITY.md.

Grades what has known points: the reference, other correct solutions, blank skeletons, one whose functions
do nothing, one that shards nothing, one that does not compile. Puts in each fault of
grading/instruments/faults. Grades a submission with mistakes again and again, alone and beside itself:
each time every test has to end the same. What was done before and has not changed is not done again, so a
run that was broken off goes on where it stopped.
Exits with 1 if anything is not as it should be.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import sys
import textwrap
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import does_nothing  # noqa: E402
import faults  # noqa: E402
import sample_class  # noqa: E402
from grader import course, grade, programs, run, whole_file  # noqa: E402
from grader.course import ROOT, Refused  # noqa: E402
from grader.submission import Submission  # noqa: E402

OUT = ROOT / "grading" / "instruments" / "QUALITY.md"
SEED = "b"
REPEATED = ("no_gaps_between_parameters", "sum_not_mean", "prefetch_before_gathering")


def that_shards_nothing():
    files = course.task_files("solutions")
    unsharded = ROOT / "grading" / "instruments" / "unsharded"
    for path in filter(pathlib.Path.is_file, unsharded.rglob("*")):
        files[path.relative_to(unsharded).as_posix()] = path.read_bytes()
    return files


def known():
    """(what it is, files, its points, those over its own tasks alone, throughput apart)."""
    most = grade.most_points()
    tests = sum(task.points for task in course.tasks())
    meta_init, flat_parameter, forward_hooks = (task.points for task in course.tasks()[:3])
    yield "the reference solutions", course.task_files("solutions"), most, tests
    for other in course.OTHERS:
        yield f"the {other} solution", course.other_solution(other), most, tests
    yield "the skeletons", course.blank(), 0, 0
    yield "functions that do nothing", does_nothing.files(), 0, 0
    yield "task 2 shards nothing", that_shards_nothing(), tests - flat_parameter, meta_init
    broken = sample_class.that_does_not_compile()
    yield "task 3 does not compile", broken, tests - forward_hooks, meta_init + flat_parameter


def grade_known():
    """The first one alone, so its seconds are those of one grading; the others two at a time."""

    def one(what, files, *expected):
        with programs.new_job() as job:
            graded = grade.grade(what, Submission(files, ()), SEED, job)
        bases = [score for scores in graded.scores.values() for score in scores]
        own = round(sum(score.points for score in bases if score.base == "own"), 2)
        print(f"{what:24} {graded.points:6.2f} of {expected[0]:g} that it should have, over its own tasks "
              f"{own:g} of {expected[1]:g}, {graded.seconds:.0f} s", flush=True)
        return what, [graded.points, own], list(expected)

    first, *others = known()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [one(*first), *pool.map(one, *zip(*others))]


def outcomes(graded):
    """Of every test on every base, and the points."""
    found = {"points": graded.points}
    for task, scores in graded.scores.items():
        for score in scores:
            for problem in score.problems:
                found[f"{task} {score.base} {problem.problem.number}"] = [
                    [kind, list(counts), problem.points[kind][0]]
                    for kind, counts in problem.counts.items()
                ]
            found[f"{task} {score.base} tests"] = sorted(score.outcomes.items())
    return found


def repeat(times):
    """How many different results there were. The first half alone, then two at a time."""
    submission = Submission(sample_class.with_faults(*REPEATED), ())
    keys = [run.code()] + [program.key(submission) for program in programs.all_programs()]
    folder = programs.KEPT / "repetitions" / hashlib.sha256(" ".join(keys).encode()).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)

    def one(number):
        path = folder / f"{number}.json"
        if not path.exists():
            with programs.new_job() as job:
                graded = grade.grade(str(number), submission, SEED, job, fresh=True)
            whole_file.write(path, json.dumps(outcomes(graded)))
        result = json.loads(path.read_text())
        print(f"repetition {number + 1:2}: {result['points']} points", flush=True)
        return result

    results = [one(number) for number in range(times // 2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results += pool.map(one, range(times // 2, times))
    different = {json.dumps(result, sort_keys=True) for result in results}
    return len(different), results[0]["points"]


def paragraph(text):
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def commit():
    head = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return head.stdout.strip() or "an unknown commit"


def table(rows, times, different, points, caught, all_faults):
    ended = "every test ended the same each time" if different == 1 else f"{different} different results"
    return "\n".join([
        "# How good the grader is",
        "",
        paragraph(f"Made by `grading/instruments/quality.py` at {commit()}. A task counts over the submission's own tasks before it or "
                  f"over the reference ones, whichever gives more; with throughput there are "
                  f"{grade.most_points():g} points. The last two columns are the tasks over the submission's "
                  f"own alone, without throughput."),
        "",
        "| Submission | Points | should be | over its own tasks | should be |",
        "|---|---|---|---|---|",
        *(f"| {what} | {got:g} | {wanted:g} | {own:g} | {own_wanted:g} |"
          for what, (got, own), (wanted, own_wanted) in rows),
        "",
        paragraph(f"Of {all_faults} one-line mistakes in a reference solution, {caught} lose points of their "
                  f"task, with a message that says what is wrong ([faults/MATRIX.md](faults/MATRIX.md)). Over "
                  f"the reference solutions the other tasks are the very programs of the reference, and so "
                  f"keep their points."),
        "",
        paragraph(f"A submission with mistakes in three tasks was graded {times} times, half of them two at a "
                  f"time: {points:g} points, and {ended}."),
        "",
        paragraph("Ways to points without a solution: [exploits.toml](exploits.toml); "
                  "`grading/instruments/exploits.py` grades them."),
        "",
    ])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=20, metavar="N")
    arguments = parser.parse_args()
    started = time.monotonic()
    try:
        grade.prepare()
        rows = grade_known()
        bank = faults.load()
        caught, all_faults = faults.count_told(bank, faults.run_all(bank)), len(bank)
        different, points = repeat(arguments.repetitions)
    except Refused as refused:
        sys.exit(f"quality: {refused}")
    whole_file.write(OUT, table(rows, arguments.repetitions, different, points, caught, all_faults))
    wrong = sum(got != expected for _, got, expected in rows) + (different != 1) + all_faults - caught
    print(f"{OUT.relative_to(ROOT)}: {wrong} wrong, {time.monotonic() - started:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
