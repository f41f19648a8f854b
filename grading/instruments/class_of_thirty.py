#!/usr/bin/env python3
"""Grades a class of thirty, six of whom attack, two at a time, and compares it with what the honest ones
have when each is graded alone. With --kill-after SECONDS the grader of the class is killed then, as by a
machine that goes down; without, the class goes on where it stopped:

    class_of_thirty.py FOLDER --kill-after 200    # some times
    class_of_thirty.py FOLDER                     # ends with 1 if somebody has other points than alone
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import sample_class  # noqa: E402
from grader import course  # noqa: E402
from grader.course import ROOT  # noqa: E402

SEED = "thirty"
ATTACKS = ("throws_what_passing_tests_print", "loops_for_ever", "holds_nothing", "answers_with_nan",
           "writes_the_reports_itself", "leaves_a_daemon")
# Most hand in one task, the last ones: the grader runs only what is new to it. Of a task: another
# solution, and faults of the bank in the reference.
HAND_IN = {
    7: ("second", "nested_duplicates", "layout_without_gaps", "root_freed_after_forward"),
    6: ("third", "first_order_for_ever", "unused_units_stay", "no_prefetch_in_backward"),
    5: ("fourth", "updates_a_copy", "one_group_for_all"),
    3: ("second",),
}
COPIES = 6


def honest():
    """Name -> files. Some hand in what somebody else does."""
    found = {}
    for task, (other, *names) in HAND_IN.items():
        found[f"t{task}_{other}"] = sample_class.only(
            course.other_solution(other), task)
        found[f"t{task}_reference"] = sample_class.only(course.task_files("solutions"), task)
        for fault in names:
            found[f"t{task}_{fault}"] = sample_class.only(sample_class.with_faults(fault), task)
    found["blank"] = sample_class.first(0)
    found["t3_does_not_compile"] = sample_class.only(sample_class.that_does_not_compile(), 3)
    return {**found, **{f"{name}_too": found[name] for name in list(found)[:COPIES]}}


def make(folder, which):
    """The submissions. `which` is in their sources, so that nothing is known of them from other runs; a
    copy is the same file for file."""
    attackers = {name: sample_class.exploit(name) for name in ATTACKS}
    for name, files in {**honest(), **attackers}.items():
        mark = f"\n// {which} {name.removesuffix('_too')}\n".encode()
        marked = {path: content + mark for path, content in files.items()
                  if path.endswith(".cpp") and content != course.blank()[path]}
        sample_class.write(folder, name, {**files, **marked}, as_zip=name.endswith("_too"))


def grade(*arguments, seconds=None):
    """Whether it ended well. After `seconds` it is killed."""
    grader = subprocess.Popen([ROOT / "fsdp", "grade", "--seed", SEED, *arguments], start_new_session=True)
    try:
        return grader.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        os.killpg(grader.pid, signal.SIGKILL)
        return False


def points(path):
    """(entry, score) of everything in results.json but throughput, which is measured in seconds."""
    return {test["name"]: test["score"] for test in json.loads(path.read_text())["tests"]
            if test["name"] != "throughput" and "score" in test}


def compare(folder):
    """A line for everybody; how many have other points than they should."""
    wrong = 0
    for name in (*honest(), *ATTACKS):
        got = points(folder / "grades" / name / "results.json")
        alone = folder / "alone" / f"{name.removesuffix('_too')}.json"
        expected = points(alone) if name not in ATTACKS else dict.fromkeys(got, 0)
        different = sorted(entry for entry in got if got[entry] != expected.get(entry))
        wrong += bool(different)
        print(f"{name:36} {sum(got.values()):6.2f} points, {sum(expected.values()):6.2f} expected  {different or ''}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kill-after", type=float, metavar="SECONDS")
    arguments = parser.parse_args()
    folder = arguments.folder
    for which in ("class", "apart"):
        if not (folder / which).exists():
            (folder / which).mkdir(parents=True)
            make(folder / which, f"{folder.name} {which} {os.urandom(4).hex()}")
    whole = grade("--all", folder / "class", "--out", folder / "grades", "--jobs", "2", seconds=arguments.kill_after)
    if not whole:
        sys.exit("class_of_thirty: the grader was killed; the next run goes on")
    (folder / "alone").mkdir(exist_ok=True)
    for name in honest():
        done = folder / "alone" / f"{name}.json"
        if done.exists() or name.endswith("_too"):
            continue
        if not grade(folder / "apart" / name, "--out", done.with_suffix(".new")):
            sys.exit(f"class_of_thirty: {name} can't be graded alone")
        done.with_suffix(".new").rename(done)
    wrong = compare(folder)
    print(f"{wrong} of {len(honest()) + len(ATTACKS)} have other points than they should")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
