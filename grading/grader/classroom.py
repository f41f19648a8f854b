"""Grades a class: every folder and zip in a folder is a submission. Writes a table and a page about
the class. A grading that was interrupted can be resumed."""

import collections
import concurrent.futures
import csv
import html
import io
import os
import pathlib
import statistics
import sys
import urllib.parse

from grader import course, grade, report, submission, whole_file
from grader.course import Refused
from grader.programs import new_job
from grader.progress import Progress

BYTES_PER_JOB = 6 << 30  # four ranks, the judge and its page cache


def memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def default_jobs():
    """Returns how many submissions are graded at the same time: at most one for two cores, because
    a submission runs up to four ranks, and at most one for each BYTES_PER_JOB of memory."""
    return max(1, min((os.cpu_count() or 1) // 2, memory() // BYTES_PER_JOB))


# Files about the whole class in the output folder, which also has a folder for each submission.
TABLE, PAGE, SEED = "grades.csv", "class.html", "seed"


def is_reserved(name):
    """Returns whether a submission with this name would write its results over a file of the class,
    or over a temporary file of whole_file.write()."""
    return name in (TABLE, PAGE, SEED) or name.endswith(".partial")


def submissions(folder):
    """Returns a dict, name of a submission -> its paths in `folder`. There are several paths if a
    folder and a zip, or several zips, have the same name."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        # An archive that is not a zip counts as a submission here; submission.read() refuses it
        # later, with a message for the student.
        other = "" if path.is_dir() else submission.archive_suffix(path.name)
        if not (path.is_dir() or path.suffix.lower() == ".zip" or other):
            print(
                f"{course.one_line(path.name)} is neither a folder nor a zip: it is not graded",
                file=sys.stderr,
            )
            continue
        name = path.name if path.is_dir() else path.name[: -len(other or path.suffix)]
        if is_reserved(name):
            raise Refused(
                f"{course.one_line(str(path))} needs another name, because its results would "
                f"overwrite "
                "a file of the class; rename it"
            )
        found.setdefault(name, []).append(path)
    if not found:
        raise Refused(f"{folder} has no folder and no zip to grade")
    return found


def only_one(paths):
    if len(paths) > 1:
        names = " and ".join(course.one_line(path.name) for path in paths)
        raise Refused(f"there are {names}, and only one can be graded: remove the other")
    return paths[0]


def class_seed(arguments, out):
    """Returns the seed of the class's hidden cases, and stores it in the output folder, so that a
    resumed grading uses the same seed."""
    file = out / SEED
    seed = arguments.seed or (file.read_text().strip() if file.exists() else os.urandom(8).hex())
    whole_file.write(file, seed + "\n")
    file.chmod(0o600)
    return seed


def grade_into(name, paths, seed, fresh, out, progress, only=None):
    """Grades one submission of the class, and writes its results.json and its page. Returns the
    Grade; if the submission can't be graded, its field `refused` has the reason. `paths`: a value
    of submissions()."""
    folder = out / name
    folder.mkdir(exist_ok=True)

    def write(now):
        report.write_results(folder / "results.json", now)

    try:
        handed_in = submission.read(only_one(paths))
        with new_job() as job:
            done = grade.grade(name, handed_in, seed, job, fresh, write, only=only,
                               on_step=lambda step: progress.draw(f"compiling {name}: {step}"))
    except Refused as refused:
        done = grade.Grade(name, refused=str(refused), complete=True, tasks=tuple(only or ()))
    except Exception as error:  # an error in one submission must not stop the others
        done = grade.Grade(name, refused=f"the grader failed: {error!r}", tasks=tuple(only or ()))
    write(done)
    whole_file.write(folder / "report.html", report.student_page(done))
    return done


def grade_all(arguments):
    folder = pathlib.Path(arguments.all)
    if not folder.is_dir():
        raise Refused(f"--all {folder}: there is no such folder")
    out = pathlib.Path(arguments.out or f"{folder.resolve().name}-grades")
    if out.exists() and not out.is_dir():
        raise Refused(f"--out {out}: with --all it is a folder")
    if folder.resolve() in (out.resolve(), out.resolve().parent):
        raise Refused(
            f"--out {out}: it lies in {folder} and would be taken for a submission; name another "
            f"folder"
        )
    found = submissions(folder)
    out.mkdir(parents=True, exist_ok=True)
    seed = class_seed(arguments, out)
    grade.prepare(arguments.tasks)
    print(estimate(len(found), arguments.jobs, arguments.tasks), flush=True)
    progress, grades = Progress(len(found)), {}

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = [
            pool.submit(
                grade_into, name, paths, seed, arguments.fresh, out, progress, arguments.tasks
            )
            for name, paths in found.items()
        ]
        for future in concurrent.futures.as_completed(running):
            done = future.result()
            grades[done.name] = done
            what = f"{done.points:6.2f} points, {done.seconds:4.0f} s"
            progress.show(done.name, done.refused or what)
            known = [grades[name] for name in found if name in grades]
            whole_file.write(out / TABLE, table(known))
            whole_file.write(out / PAGE, class_page(known))
    print(f"{out}/{TABLE}, {out}/{PAGE}; hidden cases: {out}/{SEED}")
    return 0


def estimate(count, jobs, only=None):
    """Returns a line on how long the grading of `count` submissions may take. One complete
    submission takes 268 s on two quiet cores. 240 s of these are divided among the tasks in
    proportion to their points."""
    share = sum(task.points for task in grade.Grade("", tasks=tuple(only or ())).graded) / sum(
        task.points for task in course.tasks())
    at_once = min(jobs, count, max(1, (os.cpu_count() or 1) // 2))
    minutes = max(1, round((28 + 240 * share) / 60 * -(-count // at_once)))
    return (
        f"{count} submissions, {at_once} at a time: about {minutes} minutes if all are complete; "
        f"one that hangs "
        f"everywhere takes up to 20 minutes"
    )


def cell(text):
    """Returns the text for a cell of a CSV table. If it begins with a character with which a
    formula begins, an apostrophe is put in front, so that a spreadsheet does not run it as a
    formula."""
    return f"'{text}" if text.startswith(tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")) else text


def columns(grade):
    """Returns the tasks that have a column in the table of the class: those whose problems are not
    all extensions."""
    return [task for task in grade.graded if not task.optional]


def points_of_tasks(done):
    best = map(done.best, columns(done))
    return [f"{one.points:g}" if one else "0" for one in best]


def numbers(*texts):
    return "".join(f"<td class=number>{text}" for text in texts)


def table(grades):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)  # for some, ; ends a cell
    names = [f"task {task.number}" for task in columns(grades[0])]
    writer.writerow(
        ["submission", "points", *names, "throughput", "extensions", "seconds", "remark", "to read"]
    )
    for done in grades:
        name, trains = cell(course.one_line(done.name)), done.throughput.get("points", 0)
        writer.writerow(
            [
                name,
                f"{done.points:g}",
                *points_of_tasks(done),
                trains,
                f"{done.extension_points:g}",
                f"{done.seconds:.0f}",
                cell(done.remark.replace(";", ",")),
                cell(course.one_line(" / ".join(done.notes)).replace(";", ",")),
            ]
        )
    return text.getvalue()


def histogram(points, most):
    """Returns a histogram of the students' points, in ten equal ranges from 0 to `most`, as an
    SVG."""
    counts = [0] * 10
    for value in points:
        counts[min(9, int(10 * value / most))] += 1
    highest = max(counts) or 1
    bars = []
    for i, count in enumerate(counts):
        height = 120 * count / highest
        bars.append(
            f"<rect x={i * 60 + 6} y={140 - height:.1f} width=48 height={height:.1f} />"
            f"<text x={i * 60 + 30} y=156>{most * i / 10:g}&ndash;{most * (i + 1) / 10:g}</text>"
            f"<text x={i * 60 + 30} y={134 - height:.1f}>{count or ''}</text>"
        )
    return f"<svg viewBox='0 0 600 165' role=img aria-label='points'>{''.join(bars)}</svg>"


def rates(grades):
    """Returns pairs (test, number of submissions that pass it), the test that fewest submissions
    pass first. For each submission, the better of its two results for the task counts, as
    score.better() chooses it: over the student's own earlier tasks, or over the reference
    solutions of them."""
    found = collections.Counter()
    for done in grades:
        for task in done.graded:
            best = done.best(task)
            for test, passed in best.outcomes.items() if best else ():
                found[test] += passed
    return sorted(found.items(), key=lambda item: (item[1], item[0]))


def class_page(grades):
    most = grade.most_points(grades[0])
    read = [done for done in grades if not done.refused]
    points = [done.points for done in read]
    middle = statistics.median(points or [0])
    rows = "".join(
        f"<tr><td class=name><a "
        f"href='./{urllib.parse.quote(done.name, errors='surrogateescape')}/report.html'>"
        f"{html.escape(course.one_line(done.name))}</a><small>{html.escape(done.remark)}</small>"
        f"<small>{html.escape(course.one_line('; '.join(done.notes)))}</small>"
        + numbers(
            f"{done.points:g}",
            *points_of_tasks(done),
            f"{done.throughput.get('points', 0):g}",
            f"{done.extension_points:g}",
            f"{done.seconds:.0f}",
        )
        for done in sorted(grades, key=lambda done: -done.points)
    )
    heads = "".join(
        f"<th class=number>task {task.number}<small>of {task.points:g}</small>"
        for task in columns(grades[0])
    )
    tests = "".join(
        f"<tr><td>{html.escape(suite)}<td class=test>{html.escape(sentence.replace('_', ' '))}"
        f"<td class=number>{passed} of {len(read)}{report.meter(passed, len(read))}"
        for test, passed in rates(read)
        for suite, _, sentence in [test.partition(".")]
    )
    trains = course.rubric()["throughput"]["points"]
    refused = f", {len(grades) - len(read)} more not graded" if len(read) < len(grades) else ""
    title = f"{len(read)} submissions{refused}, median {middle:g} of {most:g} points"
    body = (
        f"<h1>{title}</h1><h2>Points</h2>{histogram(points, most)}"
        f"<div class=scrolls><table><tr><th>submission<th class=number>points<small>of "
        f"{most:g}</small>{heads}"
        f"<th class=number>throughput<small>of {trains:g}</small><th "
        f"class=number>extensions<small>no part of it</small>"
        f"<th class=number>seconds{rows}</table></div>"
        f"<h2>How many pass which test</h2><p>On every number of ranks; the hardest first.</p>"
        f"<div class=scrolls><table><tr><th>suite<th>test<th class=number>pass<th "
        f"class=bar>{tests}</table></div>"
    )
    return report.page(title, body, "wide")
