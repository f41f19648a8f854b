"""The output that COURSE.md and README.md show, made by a run (samples.toml)."""

import re

from course import memory_figure
from course.claimed import normal, run
from grader import bank, changed, course, programs
from grader.course import BUILD, ROOT, Refused

SAMPLES = ROOT / "grading" / "course" / "samples.toml"
FIELDS = {"page", "command", "kind"}
OPTIONAL = {"file", "old", "new", "task", "stack", "from", "pattern", "says", "varies"}


def load():
    samples = bank.load(SAMPLES, "sample", FIELDS, OPTIONAL)
    return [{**sample, "name": f"{sample['page']}: {sample['command']}"} for sample in samples]


def block_span(text, sample):
    """Where the output is in the page: the first block after the command, fenced or indented."""
    at = text.find(f"    {sample['command']}\n") if "from" not in sample else text.find(sample["from"])
    if at < 0:
        raise Refused(f"{sample['page']} does not show the command {sample['command']}")
    if sample["kind"] == "indented":
        found = re.compile(r"(?:    .*\n|\n(?=    ))+").search(text, text.index("\n\n", at) + 2)
        return found.start(), found.end()
    begin = text.index("```\n", at) + 4
    return begin, text.index("```", begin)


def shown(sample):
    text = (ROOT / sample["page"]).read_text()
    begin, end = block_span(text, sample)
    return text[begin:end]


def stdout(words):
    return run(words).stdout


def check_with_a_mistake(sample):
    """What `check` prints for a student with this mistake, whose stack of this name it tests."""
    task = course.tasks()[sample["task"] - 1]
    with programs.new_job() as job:
        tests = changed.program(sample["file"], sample, task.number, job)
        tests.rename(tests.with_name(f"{sample['stack']}_task{task.number}_tests"))
        check = tests.with_name("check")  # finds the tests beside it
        check.hardlink_to(BUILD / "bin" / "check")
        return stdout([check, *sample["command"].split()[2:], "--stacks", sample["stack"]])


def check_of_nothing(_):
    return stdout([BUILD / "bin" / "check", "--stacks", "mine", "--blank", "1,2,3,4,5,6,7"])


def check_of_solutions(_):
    """As `check --solutions` prints it if every test passes: only the tests are counted here."""
    lines, tests, more = [], 0, 0
    row = "{:24} ################ {:5.1f} of {:3.0f}   complete, {} tests".format
    for task in course.tasks():
        listed = stdout([BUILD / "bin" / f"reference_task{task.number}_tests", "--gtest_list_tests"])
        suites, others = ({suite for problem in problems for suite in problem.suites}
                          for problems in (task.problems, task.extensions))
        count, suite = 0, ""
        for line in listed.splitlines():
            suite = line.strip().rstrip(".").lstrip("/") if not line.startswith(" ") else suite
            count += line.startswith("  ") and suite in suites
            more += line.startswith("  ") and suite in others
        lines.append(row(f"task {task.number} {task.name}", task.points, task.points, count))
        tests += count
    points = sum(task.points for task in course.tasks())
    lines.append(row("all", points, points, tests))
    points = sum(problem.points for task in course.tasks() for problem in task.extensions)
    lines.append(row("extensions", points, points, more))
    return "\n".join([*lines, "Tested the reference solutions, not tasks/.", ""])


def failing_training(sample):
    """The error, indented."""
    error = run([BUILD / "bin" / "reference_train", *sample["command"].split()[2:]]).stderr
    return "".join(f"    {line}\n" for line in error.splitlines())


def numbers(sample):
    """The numbers that the command prints, in the words of the page."""
    words = sample["command"].split()
    found = re.findall(sample["pattern"], stdout([BUILD / "bin" / words[1], *words[2:]]))
    return sample["says"].format(", ".join(found))


def levers_of_memory(_):
    return memory_figure.table()


KINDS = {"mistake": check_with_a_mistake, "nothing": check_of_nothing, "solutions": check_of_solutions,
         "indented": failing_training, "levers": levers_of_memory}


def plain(text, sample):
    """Without what differs from run to run."""
    return re.sub(sample["varies"], "", text) if "varies" in sample else text


def play(sample, arguments):
    if sample["kind"] == "numbers":
        says = numbers(sample)
        said = normal((ROOT / sample["page"]).read_text())
        return [] if says in said else [f"{sample['page']} does not say: {says}"]
    printed = KINDS[sample["kind"]](sample)
    if arguments.write and plain(shown(sample), sample) != plain(printed, sample):
        path = ROOT / sample["page"]
        text = path.read_text()
        begin, end = block_span(text, sample)
        path.write_text(text[:begin] + printed + text[end:])
    before, now = (plain(text, sample).splitlines() for text in (shown(sample), printed))
    return [f"shows '{a}', prints '{b}'" for a, b in zip([*before, "the end"], [*now, "the end"]) if a != b][:3]


def wrong_forms():
    """What is wrong before anything runs."""
    for sample in load():
        try:
            if sample["kind"] != "numbers":
                shown(sample)
            if "old" in sample:
                changed.solutions(sample["file"], sample)
        except Refused as refused:
            yield f"{sample['name']}: {refused}"
