"""Writes a grade as Gradescope's results.json and as a page for the student."""

import html
import json

from grader import course, whole_file
from grader.grade import most_extension_points, most_points, most_usual_points
from grader.score import most_usual_points as most_usual_points_of

BASE_NAMES = {
    "own": "your own tasks before it",
    "reference": "the reference solutions of the tasks before it",
}
TWICE = (
    "Each task but the first was graded twice. The better result counts, once for the usual tests "
    "and once for "
    "the hidden cases:"
)


def counts_text(counts):
    words = zip(counts, ("passed", "failed", "not started"))
    return ", ".join(f"{count} {word}" for count, word in words if count or word == "passed")


def bases_text(grade, task):
    scores = sorted(grade.scores[task.number], key=lambda score: score.base)
    both = scores[0].task.number > 1  # false for task 1, which has no earlier task
    return "; ".join((f"over {BASE_NAMES[s.base]}: " if both else "") + points_text(s)
                     for s in (scores if both else scores[:1]))


def points_text(score):
    hidden = f" and {score.points_of('hidden'):g} for hidden cases" if hidden_is_shown() else ""
    why = f" ({course.one_line(' '.join(score.why.split()))})" if score.why else ""
    most = score.task.points if hidden_is_shown() else most_usual_points_of(score.task)
    return f"{score.usual_points:g}{hidden} of {most:g}{why}"


def hidden_is_shown():
    return course.rubric()["visibility"]["hidden"] == "visible"


def shown_points(score):
    """Returns the points of a Grade or a TaskScore that students may see now: without those of
    hidden cases until the rubric makes hidden cases visible."""
    return score.points if hidden_is_shown() else score.usual_points


def shown_seconds(grade):
    """Returns the seconds of the grading that students may see now. Until hidden cases are shown,
    the seconds in which they ran are left out, because code that sleeps could reveal the sizes of
    hidden cases."""
    return grade.seconds if hidden_is_shown() else grade.usual_seconds


def most_shown_points(grade):
    return most_points(grade) if hidden_is_shown() else most_usual_points(grade)


def entry(name, number, points, output, visibility, tags=()):
    score, most = points
    return {
        "name": name,
        **({"number": number} if number else {}),
        "score": score,
        "max_score": most,
        "status": "passed" if score == most else "failed",
        "output": output,
        "output_format": "text",
        "tags": list(tags),
        "visibility": visibility,
    }


def of_problem(task_score, problem_score):
    """Yields the two entries of a problem in results.json: that of its usual tests and that of its
    hidden cases."""
    problem = problem_score.problem
    visibility = course.rubric()["visibility"]
    task = f"task {task_score.task.number}"
    head, hidden_head = (
        f"graded over {BASE_NAMES[base]}" for base in (task_score.base, task_score.base_of_hidden)
    )
    remark = f"\n{task_score.remark}" if task_score.remark else ""
    others = "".join(
        f"\n\n{why}" for why in task_score.reasons if task_score.why and why != task_score.why
    )
    counts = counts_text(problem_score.counts["tests"])
    usual = f"{head}: {counts}{remark}\n\n{problem_score.text}{others}"
    hidden = (
        f"{hidden_head}: {counts_text(problem_score.counts['hidden'])}{remark}\n"
        "These are the same tests with other numbers of ranks, sizes and values.\n\n"
        f"{problem_score.texts['hidden']}"
    )
    name = f"{problem.number} {problem.name}"
    points = problem_score.points
    yield entry(name, problem.number, points["tests"], usual.strip(), visibility["tests"], [task])
    yield entry(
        f"{name}, hidden cases",
        problem.number,
        points["hidden"],
        hidden.strip(),
        visibility["hidden"],
        [task, "hidden"],
    )


def waiting(grade):
    return "not graded: see the remark on the whole" if grade.refused else "not graded yet"


def of_throughput(grade):
    measured = grade.throughput
    settings = course.rubric()["throughput"]
    if "ratio" in measured:
        text = (
            f"A training run takes {measured['ratio']:.2f} times as long as the reference's. "
            f"Full points are given up to {settings['full']:g} times."
        )
    else:
        text = measured.get("why") or waiting(grade)
    return entry("throughput", "", (measured.get("points", 0), settings["points"]), text,
                 course.rubric()["visibility"]["throughput"], ["task 7"])


def of_extensions(grade):
    """Returns the entry of results.json about the extensions. It has no score, because the points
    of extensions count in no total."""
    not_begun = {
        number for task in grade.graded if grade.best(task) for number in grade.best(task).not_begun
    }
    lines = [
        f"{p.number} {p.name}: "
        + ("not begun" if p.number in not_begun else f"{points:g} of {p.points:g}")
        for p, points in grade.extensions
    ]
    earned = f"{grade.extension_points:g} of {most_extension_points(grade):g} points"
    head = f"{earned}, which are not part of the grade"
    left_out = dict.fromkeys(
        score.left_out for score in map(grade.best, course.tasks()) if score and score.left_out
    )
    if left_out:
        lines += [
            "",
            "The tasks were graded as if these extensions had not been handed in:",
            *left_out,
        ]
    return {"name": "extensions", "output": "\n".join([head, *lines]), "output_format": "text",
            "visibility": "visible"}


def of_notes(grade):
    """Yields at most one entry of results.json, which students do not see: the seed of the hidden
    cases, and findings in the code that cost no points."""
    lines = (
        [f"To grade again with the same hidden cases: --seed {grade.seed}"] if grade.seed else []
    )
    if grade.notes:
        lines += ["These findings cost no points; read the code if you like:", *grade.notes]
    if lines:
        yield {
            "name": "for the instructor",
            "output": "\n".join(lines),
            "output_format": "text",
            "visibility": "hidden",
        }


def leaderboard_text(grade):
    """Returns a sentence with the measured time and memory of the training with the choices in
    leaderboard.toml, or the reason why it does not count."""
    measured = grade.leaderboard
    if "why" in measured:
        return f"Not on the leaderboard: {course.one_line(measured['why'])}."
    return (f"Leaderboard: the training takes {measured['milliseconds']:,.3f} ms on the simulated "
            f"machine, with at most {measured['peak']:,} bytes of tensors on a rank.")


def leaderboard(grade):
    """Returns the columns of Gradescope's leaderboard. Gradescope ranks by the first column."""
    columns = (
        ("counted ms", grade.leaderboard.get("milliseconds")),
        ("peak bytes", grade.leaderboard.get("peak")),
        ("seconds / reference", grade.throughput.get("ratio")),
    )
    return [{"name": name, "value": value, "order": "asc"} for name, value in columns if value]


def remarks(grade):
    """Returns lines about the whole submission, for the head of the student's results."""
    if grade.refused:
        return [f"Not graded: {grade.refused}"]
    later = most_points(grade) - most_shown_points(grade)
    held = f" The hidden cases' {later:g} come later." if later else ""
    points = f"{shown_points(grade):g} of {most_shown_points(grade):g} points"
    known = f" ({grade.known} results were known from before)" if grade.known else ""
    lines = [f"{points}, graded in {shown_seconds(grade):.0f} s{known}.{held}"]
    if grade.tasks:
        lines.append(f"Of the course these tasks were graded: {', '.join(map(str, grade.tasks))}.")
    if grade.leaderboard:
        lines.append(leaderboard_text(grade))
    if grade.remark:
        lines.append(f"Not run: {grade.remark}.")
    if not grade.complete:
        lines.append("The grader stopped early. This is what it knew by then.")
    for names, what in (
        (grade.missing, "Not handed in, so graded as delivered"),
        (
            grade.changed,
            "Graded with the course's own copies of these headers, which yours differ from",
        ),
        (
            grade.ignored,
            "Not compiled, as ./fsdp check does not compile them either: move what is in "
            "them into a .cpp file of a task's folder",
        ),
    ):
        if names:
            shown = ", ".join(name[:100] for name in names[:20]) + (
                ", ..." if len(names) > 20 else ""
            )
            lines.append(f"{what}: {course.one_line(shown)}.")
    return [*lines, TWICE] if grade.scores else lines


def summary(grade):
    tasks = [task for task in course.tasks() if task.number in grade.scores]
    lines = [f"  task {task.number} {task.name}: {bases_text(grade, task)}" for task in tasks]
    return "\n".join([*remarks(grade), *lines])


def gradescope(grade):
    """Returns results.json in the form of Gradescope's documentation. Its score is the sum over its
    tests."""
    tests = []
    for task in grade.graded:
        best = grade.best(task)
        for problem in best.problems if best else ():
            tests.extend(of_problem(best, problem))
        if best is None:
            tests.extend(
                entry(
                    f"{p.number} {p.name}",
                    p.number,
                    (0, p.points),
                    waiting(grade),
                    "visible",
                    [f"task {task.number}"],
                )
                for p in task.problems
            )
    if grade.trains:
        tests.append(of_throughput(grade))
    score = round(sum(test["score"] for test in tests), 2)
    return {
        "score": score,
        "execution_time": round(shown_seconds(grade)),
        "output": summary(grade),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [*tests, of_extensions(grade), *of_notes(grade)],
        "leaderboard": leaderboard(grade),
        "extra_data": {
            "complete": grade.complete,
            "bases": {f"task {number}": {score.base: shown_points(score) for score in scores}
                      for number, scores in grade.scores.items()},
        },
    }


def write_results(path, grade):
    whole_file.write(path, json.dumps(gradescope(grade), indent=1) + "\n")


STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --back: #fff; --line: #d8dee4; --box: #f3f5f7;
  --full: #17692c; --part: #8a5a00; --none: #a3201d; --link: #0a58a6; --bar: #4878a8 }
@media (prefers-color-scheme: dark) { :root {
  --text: #dde2e8; --back: #14171a; --line: #343b43; --box: #1d2226;
  --full: #6fd08c; --part: #e5b567; --none: #f0857f; --link: #7fb8f0; --bar: #6f9fd0 } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--text); background: var(--back); overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.25 } a { color: var(--link) } small { display: block }
table { border-collapse: collapse; width: 100% } td, th { padding: .25rem .6rem; text-align: left;
  border-bottom: 1px solid var(--line); vertical-align: top }
.number { text-align: right; white-space: nowrap } .task th { padding-top: 1.2rem }
.task small { font-weight: normal }
pre { white-space: pre-wrap; background: var(--box); padding: .7rem; font-size: 13px }
.full { color: var(--full) } .part { color: var(--part) } .none { color: var(--none) }
meter { width: 8rem }
svg rect { fill: var(--bar) } svg { max-width: 48rem }
svg text { font-size: 10px; text-anchor: middle; fill: currentColor }
.wide { max-width: 80rem } .scrolls { overflow-x: auto; overflow-wrap: normal }
.name, .test { min-width: 9rem }
.name, .test { overflow-wrap: anywhere }
@media (max-width: 40rem) { .bar { display: none } td, th { padding: .25rem .4rem } }
"""


def page(title, body, kind=""):
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style><body "
        f"class='{kind}'>{body}</html>\n"
    )


def meter(value, most):
    return f"<td class=bar><meter value={value} max={most}></meter>"


def row(test):
    """Returns the HTML of a problem on a student's page: a row with its points and, if some are
    missing, a row with the reason. `test`: an entry of results.json."""
    score, most = test["score"], test["max_score"]
    kind = "full" if score == most else "part" if score else "none"
    details = ""
    if kind != "full" and test["output"]:
        details = (
            f"<tr><td colspan=3><details><summary>why not all of "
            f"{html.escape(test['name'].split()[0])}</summary>"
            f"<pre>{html.escape(test['output'])}</pre></details>"
        )
    return (f"<tr><td>{html.escape(test['name'])}<td class='number {kind}'>{score:g} of {most:g}"
            f"{meter(score, most)}{details}")


def of_task(grade, task, tests):
    """Returns the HTML rows of a task on a student's page: the task's points, and the points of
    those of its problems that may be shown."""
    bases = (
        f"<small>{html.escape(bases_text(grade, task))}</small>"
        if grade.best(task) and task.number > 1
        else ""
    )
    score, most = (round(sum(test[name] for test in tests), 2) for name in ("score", "max_score"))
    return (f"<tr class=task><th>task {task.number} {html.escape(task.name)}{bases}"
            f"<th class=number>{score:g} of {most:g}<th class=bar>{''.join(map(row, tests))}")


def student_page(grade):
    results = gradescope(grade)
    graded = [test for test in results["tests"] if "score" in test]
    throughput = graded.pop() if grade.trains else None
    extensions = of_extensions(grade)
    points = (
        "not graded"
        if grade.refused
        else f"{shown_points(grade):g} of {most_shown_points(grade):g} points"
    )
    title = f"{course.one_line(grade.name)}: {points}"
    body = f"<h1>{html.escape(title)}</h1>"
    body += "".join(f"<p>{html.escape(line)}" for line in remarks(grade))
    if not grade.refused:
        rows = ""
        for task in grade.graded:
            if task.optional:
                continue  # its points are listed under "Extensions"
            of_it = [test for test in graded if f"task {task.number}" in test["tags"]]
            rows += of_task(
                grade, task, [test for test in of_it if test["visibility"] == "visible"]
            )
        if throughput and throughput["visibility"] == "visible":
            rows += f"<tr class=task><th>training<th class=number><th class=bar>{row(throughput)}"
        body += f"<table><tr><th>problem<th class=number>points<th class=bar>{rows}</table>"
        body += f"<h2>Extensions</h2><pre>{html.escape(extensions['output'])}</pre>"
    return page(title, body)
