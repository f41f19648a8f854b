"""The steps of the handouts' sections "Break it", played on the reference solutions (break_it.toml).

The answer of a step names tests in `code`. Each of them has to fail, except where break_it.toml says that
it passes. In which problems other tests fail is said in one sentence, which made_sentence() makes.
"""

import re
import textwrap

from course.claimed import handout_of, normal
from grader import bank, changed, course
from grader.course import ROOT, Refused

STEPS = ROOT / "grading" / "course" / "break_it.toml"
FIELDS = {"task", "number", "file", "old", "new"}
OPTIONAL = {"old_2", "new_2", "check", "passes", "ranks", "says"}
TEST = re.compile(r"`(T[1-7]_\d_\w+\.\w+)`")
MADE = re.compile(r"^ *With the reference solution,[^<]*?\b(?:fails|as\s+well)\.$", re.MULTILINE)


def load():
    steps = bank.load(STEPS, "step", FIELDS, OPTIONAL)
    return [{**step, "name": f"task {step['task']}, Break it {step['number']}"} for step in steps]


def answer_span(text, number):
    """Where the answer of step `number` is in the handout: from its summary to its end."""
    section = re.search(r"^## Break it$.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    item = re.search(rf"^{number}\. .*?</details>", section[0], re.MULTILINE | re.DOTALL)
    if not item:
        raise Refused(f"the handout has no Break it {number} with an answer")
    begin = section.start() + item.start() + item[0].index("</summary>") + len("</summary>")
    return begin, section.start() + item.end() - len("</details>")


def answer_of(step):
    text = handout_of(step["task"]).read_text()
    begin, end = answer_span(text, step["number"])
    return text[begin:end]


def scope(step):
    """The number of the problem that the student checks; empty: the whole task."""
    problem = step.get("check", "").partition(" ")[0]
    return problem if "." in problem else ""


def problem_of(test):
    """Its number; None for an extension, of which an answer says nothing."""
    suite = test.partition(".")[0]
    return next((p.number for task in course.tasks() for p in task.problems if suite in p.suites), None)


def failures(step, fresh):
    """What the tests that the student runs print if they do not pass: test -> ranks -> text."""
    base = "own" if "--base mine" in step.get("check", "") else "reference"
    red = changed.failures(changed.result(step["file"], step, step["task"], base, fresh))
    return {test: texts for test, texts in red.items()
            if problem_of(test) and scope(step) in ("", problem_of(test))}


def made_sentence(step, others):
    """`others`: the tests that fail and that the answer does not name."""
    what = f"problem {scope(step)}" if scope(step) else f"task {step['task']}"
    problems = sorted({problem_of(test) for test in others})
    if not problems:
        return f"With the reference solution, no other test of {what} fails."
    listed = " and ".join(filter(None, [", ".join(problems[:-1]), problems[-1]]))
    which = "problem" if len(problems) == 1 else "problems"
    return f"With the reference solution, other tests of {which} {listed} fail as well."


def differences(step, answer, red):
    """What the answer says otherwise. `red`: test -> ranks -> what it prints."""
    named = set(TEST.findall(answer))
    passes = set(step.get("passes", ()))
    if not named - passes:
        yield "its answer names no test that fails"
    for test in sorted(named - passes - set(red)):
        yield f"its answer names {test}, which passes"
    for test in sorted(passes & set(red)):
        yield f"{test} is said to pass, and fails on W {changed.ranks_of(red[test])}"
    for test in sorted(passes - named):
        yield f"break_it.toml says that {test} passes; the answer does not name it"
    for test, ranks, words in step.get("ranks", ()):
        if words not in normal(answer):
            yield f"its answer does not say '{words}'"
        texts = set().union(*red.values()) if test == "*" else red.get(test, {})
        if changed.ranks_of(texts) != ranks:
            yield f"{test} fails on W {changed.ranks_of(texts)}; the answer says '{words}'"
    for test, words in step.get("says", ()):
        if words not in normal(answer):
            yield f"its answer does not quote '{words}'"
        if not any(words in normal(text) for text in red.get(test, {}).values()):
            yield f"{test} does not print '{words}', which the answer quotes"
    made = made_sentence(step, set(red) - named)
    if [normal(found[0]) for found in MADE.finditer(answer)] != [made]:
        yield f"its answer must say, once: {made}"


def put_sentence(step, red):
    """Writes the made sentence into the handout, as the last paragraph of the answer."""
    path = handout_of(step["task"])
    text = path.read_text()
    begin, end = answer_span(text, step["number"])
    answer = text[begin:end]
    made = made_sentence(step, set(red) - set(TEST.findall(answer)))
    line = textwrap.fill(made, 100, initial_indent="   ", subsequent_indent="   ")
    if MADE.search(answer):
        answer = MADE.sub(lambda _: line, answer)
    else:
        answer = f"{answer.rstrip()}\n\n{line}\n   "
    path.write_text(text[:begin] + answer + text[end:])


def play(step, arguments):
    """What is wrong with the step."""
    red = failures(step, arguments.fresh)
    if arguments.show:
        for test, texts in red.items():
            print(f"--- {test} W {changed.ranks_of(texts)}\n{next(iter(texts.values()))}")
    if arguments.write:
        put_sentence(step, red)
    return list(differences(step, answer_of(step), red))


def wrong_forms():
    """What is wrong before anything runs."""
    for step in load():
        try:
            changed.solutions(step["file"], step)
            answer_of(step)
        except Refused as refused:
            yield f"{step['name']}: {refused}"
    for name in sorted({step["name"] for step in load()}.symmetric_difference(steps_of_handouts())):
        yield f"{name}: is in the handout or in break_it.toml, not in both"


def steps_of_handouts():
    """Every step that a handout has, by name."""
    for task in course.tasks():
        text = handout_of(task.number).read_text()
        section = re.search(r"^## Break it$.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
        for number in re.findall(r"^(\d)\. ", section[0], re.MULTILINE):
            yield f"task {task.number}, Break it {number}"
