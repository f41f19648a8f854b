#!/usr/bin/env python3
"""Grades a submission: a folder or a zip that holds the student's tasks/.

Uses the student's .cpp files and own headers, and links them with the grader's own copy of all
other files. Runs every task's tests twice: linked with the student's earlier tasks, and linked with
the reference solutions of the earlier tasks; the better result counts. Writes Gradescope's
results.json after each new result, and a page with --page. With --receipts, audits the receipts of
trained models in place of code. See also grading/INSTRUCTORS.md.
"""

import argparse
import os
import pathlib
import re
import sys
import textwrap

from grader import classroom, receipts, report, sandbox, submission, whole_file
from grader import grade as grader
from grader.course import Refused, one_line, tasks
from grader.programs import new_job
from grader.progress import show_line


def parse():
    parser = argparse.ArgumentParser(
        prog="fsdp grade", description="Grades a submission, or the submissions of a class."
    )
    parser.add_argument("submission", nargs="?", help="a folder or a zip that holds tasks/")
    parser.add_argument("--all", metavar="FOLDER", help="grade every folder and zip in FOLDER")
    parser.add_argument("--receipts", metavar="FOLDER",
                        help="audit the receipts (*.receipt) in every folder and zip in FOLDER")
    parser.add_argument("--out", metavar="PATH",
                        help="results.json; with --all, a folder; with --receipts, a table (CSV)")
    parser.add_argument("--page", metavar="FILE", help="write a page for the student, too")
    parser.add_argument("--seed", help="seed of the hidden cases, or of the draws of --receipts "
                        "(default: a new one)")
    parser.add_argument(
        "--tasks",
        type=task_numbers,
        metavar="1-3",
        help="grade only these tasks, as 1-3 or 1,2,5; throughput belongs to task 7",
    )
    parser.add_argument("--jobs", type=int, default=classroom.default_jobs(),
                        help="how many submissions --all and --receipts grade at a time (default "
                        "%(default)s)")
    parser.add_argument("--fresh", action="store_true",
                        help="run all tests again, also those with kept results")
    add_receipts_options(parser)
    arguments = parser.parse_args()
    if sum(map(bool, (arguments.submission, arguments.all, arguments.receipts))) != 1:
        parser.error("name one submission, --all FOLDER or --receipts FOLDER")
    require_fitting_options(parser, arguments)
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: at least 1")
    return arguments


# OF_CODE: the options that have an effect only without --receipts. OF_RECEIPTS: the options that
# have an effect only with --receipts.
OF_CODE, OF_RECEIPTS = ("page", "tasks", "fresh"), ("draw", "options", "student")


def add_receipts_options(parser):
    group = parser.add_argument_group("with --receipts")
    group.add_argument("--draw", type=int, metavar="N",
                       help=f"events to draw of each receipt (default {receipts.DRAW})")
    group.add_argument("--options", metavar="TEXT",
                       help='options of ./fsdp train in place of those in the receipts, for the '
                       'data of the class, as "--text BOOK.txt"')
    group.add_argument("--student", metavar="NAME",
                       help="audit only the receipts of this folder or zip (NAME without .zip)")


def require_fitting_options(parser, arguments):
    for name in OF_CODE if arguments.receipts else OF_RECEIPTS:
        if getattr(arguments, name):
            has = "has no effect with" if arguments.receipts else "needs"
            parser.error(f"--{name} {has} --receipts")
    for name in ("out", "page") if arguments.submission else ():
        path = getattr(arguments, name)
        if path and submission.has(arguments.submission, path):
            parser.error(f"--{name} {path}: is a file of the submission, which would be replaced; "
                         "give another file")
    out = pathlib.Path(arguments.out or "")
    if arguments.receipts and out.suffix in (".receipt", ".zip") and out.exists():
        parser.error(f"--out {out}: is a receipt or a zip, which would be replaced; name a table, "
                     "such as receipts.csv")
    if arguments.draw is not None and arguments.draw < 1:
        parser.error(f"--draw {arguments.draw}: at least 1")


def task_numbers(text):
    """Returns the task numbers of a text such as "1-3,5", ascending. Raises
    argparse.ArgumentTypeError if the text is wrong."""
    found = set()
    for part in text.split(","):
        if not (match := re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())):
            raise argparse.ArgumentTypeError(f"{text}: name tasks as 1-3 or 1,2,5")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    known = {task.number for task in tasks()}
    if not found or found - known:
        raise argparse.ArgumentTypeError(
            f"{text}: there are the tasks {min(known)} to {max(known)}"
        )
    return sorted(found)


def say(text):
    print(f"fsdp grade: {text}", file=sys.stderr, flush=True)


def grade_one(arguments):
    name = pathlib.Path(arguments.submission).resolve().name
    out = pathlib.Path(arguments.out or "results.json")
    seed = arguments.seed or os.urandom(8).hex()

    def write(grade):
        report.write_results(out, grade)
        show_line("" if grade.complete else f"{grade.points:g} points so far")

    graded = tuple(arguments.tasks or ())
    report.write_results(out, grader.Grade(name, tasks=graded))
    try:
        handed_in = submission.read(arguments.submission)
        grader.prepare(arguments.tasks)
        say(f"compiling {one_line(name)} and running its tests; what is known so far: {out}")
        with new_job() as job:
            grade = grader.grade(
                name,
                handed_in,
                seed,
                job,
                arguments.fresh,
                write,
                only=arguments.tasks,
                on_step=lambda step: show_line(f"compiling: {step}"),
            )
    except Refused as refused:
        report.write_results(out, grader.Grade(name, refused=str(refused), tasks=graded))
        say(refused)
        return 2
    if arguments.page:
        whole_file.write(pathlib.Path(arguments.page), report.student_page(grade))
    show(grade)
    print(f"hidden cases: --seed {seed}; sandbox: {sandbox.best_mode()}; results: {out}")
    return 0


def show(grade):
    for task in grade.graded:
        best = grade.best(task)
        bases = " ".join(f"{s.base} {s.points:5.1f}" for s in grade.scores[task.number])
        print(
            f"task {task.number} {task.name:18} {best.points:5.1f} of {task.points:g}   ({bases})"
        )
        for problem in best.problems:
            if problem.text and "error" in problem.text + best.remark or "not run" in problem.text:
                print(
                    textwrap.fill(
                        " ".join(problem.text.split()),
                        99,
                        initial_indent="    ",
                        subsequent_indent="    ",
                    )
                )
                break
    if measured := grade.throughput:
        ratio = (
            f"{measured['ratio']:.2f} x the reference's time"
            if "ratio" in measured
            else measured["why"]
        )
        print(f"throughput {'':16}{measured['points']:5.1f}      ({ratio})")
    known = f" ({grade.known} results were known from before)" if grade.known else ""
    print(f"all {grade.points:g} of {grader.most_points(grade):g}, in {grade.seconds:.0f} s{known}")
    for note in grade.notes:
        print(textwrap.fill(f"remark, costs no points: {note}", 99, subsequent_indent="    "))
    print(
        f"extensions {grade.extension_points:g} of {grader.most_extension_points(grade):g}, not "
        f"part of the grade"
    )


def main():
    # A student's name may have characters that the terminal's encoding lacks; they are printed as
    # escape codes.
    sys.stdout.reconfigure(errors="backslashreplace")
    arguments = parse()
    if arguments.seed == "":
        sys.exit("fsdp grade: --seed must not be empty")
    try:
        if arguments.receipts:
            status = receipts.grade(arguments)
        else:
            status = classroom.grade_all(arguments) if arguments.all else grade_one(arguments)
    except Refused as refused:
        say(refused)
        status = 2
    sys.exit(status)


if __name__ == "__main__":
    main()
