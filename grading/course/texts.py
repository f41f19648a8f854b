#!/usr/bin/env python3
"""Compares the course's texts (its Markdown pages and scripts/maintain.txt) with the repository,
and prints what does not agree. The rules are:

- A handout has a section for each problem of course.toml, with its name, points and command.
  HINTS.md has three levels for each problem.
- A path, a test, a verb of ./fsdp and an option that a text names must exist, and a name must be in
  the header that a text gives for it. (./fsdp site checks links.)
- A row of "Measure" names what to measure and the command, without reference to another row.
- A test must compare each answer of "Predict before you code" with a run.
- Each row of the tables of docs/what_works.md names its test, which must exist.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from grader import course  # noqa: E402
from grader.course import ROOT, tomllib  # noqa: E402

CODE = re.compile(r"`([^`\n]+)`")
TEST = re.compile(r"\bT[0-7]_\d_[a-z_]+\.[A-Za-z_0-9]+")
COMMAND = re.compile(r"\./fsdp ([a-z]+)([^`\n]*)")
# A path that begins with one of these strings need not exist, because a student's commands make it.
MADE = ("build/", ".backup/", ".venv", "/tmp/")


def without_blocks(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def verbs_and_options():
    """Returns the verbs of ./fsdp, and all options in the sources of its programs, whichever verb
    has them."""
    paths = [*(ROOT / "scripts/verbs").glob("*.sh"), ROOT / "grading/course/update.sh"]
    usage = "".join(path.read_text() for path in paths)
    sources = [
        path
        for folder in ("programs", "trainer/options")
        for path in (ROOT / folder).rglob("*.cpp")
    ]
    sources += [
        path for path in (ROOT / "grading").rglob("*.py") if not path.name.startswith("test_")
    ]
    options = {
        option for path in sources for option in re.findall(r"--[a-z][a-z-]+", path.read_text())
    }
    return set(re.findall(r"^#: ([a-z]+) ", usage, re.MULTILINE)), options | set(
        re.findall(r"--[a-z][a-z-]+", usage)
    ) | {"--help"}


def problems_of_task(text, task):
    """Yields what is wrong with the sections of a handout's `text`, compared with course.toml."""
    headings = re.findall(r"^## Problem (.*)$", text, re.MULTILINE)
    sections = re.split(r"^## Problem .*$", text, flags=re.MULTILINE)[1:]
    if len(headings) != len(task["problem"]):
        yield f"has {len(headings)} problems; course.toml has {len(task['problem'])}"
        return
    for heading, section, problem in zip(headings, sections, task["problem"]):
        number, points = problem["number"], problem["points"]
        points = f"{'extension, ' if problem.get('extension') else ''}{points} points"
        expected = rf"{re.escape(number)} \({problem['name']}\): \S.* \({points}\)"
        if not re.fullmatch(expected, heading):
            yield f"'{heading}' is not '{number} ({problem['name']}): TITLE ({points})'"
        section = section.split("\n## ")[0]
        if f"\n    ./fsdp check {number}\n" not in section:
            yield f"problem {number} lacks the line './fsdp check {number}'"


def problems_of_predictions(text, task):
    """Yields the answers of "Predict before you code" that no test of tests/reference/ compares
    with a run."""
    section = text.partition("## Predict before you code")[2].split("\n## ")[0]
    name = f"test_handout_of_task{task['number']}.cpp"
    source = (ROOT / "tests" / "reference" / name).read_text()
    for number in re.findall(r"^(\d)\. ", section, re.MULTILINE):
        if f"prediction_{number}_" not in source:
            yield f"{name} does not compare the answer of prediction {number} with a run"


def problems_of_measurements(text):
    """Yields the rows of the table "Measure" that refer to another row, for example with "the same"
    or "as above"."""
    section = text.partition("## Measure")[2].split("\n## ")[0]
    for row in re.findall(r"^\|.*", section, re.MULTILINE):
        if re.search(r"^\| the same\b|\bas above\b|\.\.\. *\|$", row):
            yield f"a row of Measure leans on another one: {row}"


def problems_of_hints(text, task):
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    names = [section.splitlines()[0] for section in sections]
    expected = [f"{problem['number']} {problem['name']}" for problem in task["problem"]]
    if names != expected:
        yield f"has hints for {', '.join(names)}; not for {', '.join(expected)}"
    for name, section in zip(names, sections):
        levels = re.findall(r"^### (.*)$", section, re.MULTILINE)
        if levels != ["1", "2", "3"]:
            yield f"{name} has the levels {', '.join(levels)}; not 1, 2, 3"


def problems_of_text(text, known_tests, verbs, options):
    """Yields the names of things in a text that do not exist, and the lines of the text that are
    too long."""
    for span in CODE.findall(without_blocks(text)):
        span = span.partition("#")[0]  # of `page.html#section`, checks the page
        is_path = re.fullmatch(r"[\w.\-]+(/[\w.\-]+)+/?|[\w\-]+\.(md|toml|cpp|h)", span)
        file = pathlib.PurePosixPath(span)
        if (
            is_path
            and "/" in span
            and not span.startswith(MADE)
            and (file.suffix or span[-1] == "/")
        ):
            if "N" not in span and not (ROOT / span).exists():
                yield f"there is no {span}"
    for test in TEST.findall(text):
        if test not in known_tests:
            yield f"there is no test {test}"
    for name in re.findall(r"--test ([a-z][a-z_0-9]*)", text):
        if not any(test.endswith(f".{name}") for test in known_tests):
            yield f"there is no test {name}"
    for verb, rest in COMMAND.findall(text):
        if verb not in verbs:
            yield f"there is no verb: ./fsdp {verb}"
        for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", re.split("#|&&", rest)[0]):
            if option not in options:
                yield f"./fsdp {verb} has no option {option}"
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > 110 and not line.startswith(("|", "    ")) and "](" not in line:
            yield f"line {number} has {len(line)} characters"


def headers_in(text):
    """Yields (name, header) for each "`NAME` of `HEADER`", "`NAME` (`HEADER`)" and "`HEADER` has
    `NAME`" in a text."""
    text, name, header = " ".join(text.split()), r"`([A-Za-z_:]+)(?:\(\))?`", r"`([\w/]+\.h)`"
    for first, second, path in re.findall(
        rf"{name}(?:,? and {name})?(?: of | in | \(){header}", text
    ):
        yield from ((found, path) for found in (first, second) if found)
    for path, rest in re.findall(rf"{header} (?:has|lists|offers) ([^.;]*)", text):
        yield from ((found, path) for found in re.findall(name, rest))


def problems_of_headers(text, is_task, list_of_common):
    """Yields names that are not in the header that the text gives for them. If `is_task`, also
    yields the headers of common/ that the text names and `list_of_common`, the text of
    common/README.md, does not list."""
    for name, header in headers_in(text):
        path = next(
            (path for path in (ROOT / header, ROOT / "common" / header) if path.exists()), None
        )
        if path and not re.search(rf"\b{name.split('::')[-1]}\b", path.read_text()):
            yield f"{header} has no {name}"
    for header in re.findall(r"`common/([\w/]+\.h)`", text) if is_task else []:
        if f"`{header}`" not in list_of_common:
            yield f"common/README.md does not list {header}"


def tests_named_in(text, suite=""):
    """Yields SUITE.NAME for each test that a text names as `Suite.name`; `.name` is a test of the
    suite that is named before it."""
    for first, name in re.findall(r"`(\w*)\.([a-z_0-9]+|\*)`", text):
        suite = first or suite
        yield f"{suite}.{name}"


def problems_of_rows(text, known_tests):
    """Yields the rows of a page's tables whose last cell names no test, and the names of tests, in
    tables or outside them, that do not exist."""
    known = {*known_tests, *(test.partition(".")[0] + ".*" for test in known_tests)}
    for table in re.findall(r"^\|[-|]+\|$\n((?:^\|.*\n)+)", text, re.MULTILINE):
        named = []
        for row in table.splitlines():
            cell = row.strip("| ").split("|")[-1].strip()
            if cell != "the same":
                named = list(tests_named_in(cell))
            if not named:
                yield f"the row names no test: {row}"
            yield from (f"there is no test {test}" for test in named if test not in known)
    for test in tests_named_in(re.sub(r"^\|.*\n", "", text, flags=re.MULTILINE)):
        suite = test.partition(".")[0]
        if f"{suite}.*" in known and test not in known:
            yield f"there is no test {test}"


def problems():
    known_tests, known = set(course.test_names()), verbs_and_options()
    for task in tomllib.loads((ROOT / "course.toml").read_text())["task"]:
        folder = ROOT / "tasks" / f"task{task['number']}_{task['name']}"
        for name, check in (("README.md", problems_of_task), ("README.md", problems_of_predictions),
                            ("README.md", lambda text, _: problems_of_measurements(text)),
                            ("HINTS.md", problems_of_hints)):
            path = folder / name
            more = folder / "EXTENSIONS.md"  # the last problems of some handouts
            text = path.read_text() + (
                more.read_text() if check is problems_of_task and more.exists() else ""
            )
            yield from ((path, problem) for problem in check(text, task))
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("appendix/*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("grading/*.md"),
        ROOT / "scripts/maintain.txt",
    ]
    common = (ROOT / "common/README.md").read_text()
    for path in [*sorted(pages), *sorted((ROOT / "tasks").rglob("*.md"))]:
        yield from (
            (path, problem) for problem in problems_of_text(path.read_text(), known_tests, *known)
        )
        found = problems_of_headers(path.read_text(), ROOT / "tasks" in path.parents, common)
        yield from ((path, problem) for problem in found)
    path = ROOT / "docs/what_works.md"
    yield from ((path, problem) for problem in problems_of_rows(path.read_text(), known_tests))


def main():
    sys.exit("\n".join(f"{path.relative_to(ROOT)}: {problem}" for path, problem in problems()) or 0)


if __name__ == "__main__":
    main()
