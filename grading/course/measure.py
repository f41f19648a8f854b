"""The commands of the handouts' tables "Measure", run on the reference solutions (measure.toml)."""

import functools
import pathlib
import re
import shlex
import tempfile

from course import claimed
from course.claimed import handout_of, normal
from grader import bank
from grader.course import BUILD, ROOT

TABLES = ROOT / "grading" / "course" / "measure.toml"
OPTIONAL = {"shows", "lacks", "says", "command", "equal", "near", "nothing"}  # fields of a row


def rows_of_handout(task):
    """What a row is about -> its last cell, where the command is."""
    section = re.search(r"^## Measure$.*?(?=^## )", handout_of(task).read_text(), re.MULTILINE | re.DOTALL)
    cells = (re.split(r" \| ", line[2:-2]) for line in re.findall(r"^\| .* \|$", section[0], re.MULTILINE))
    return {row[0]: row[-1] for row in cells if row[0] != "What"}


def tables():
    return bank.load(TABLES, "table", {"task", "row"}, {"short", "quicker"})


def load():
    return [{**bank.checked(row, TABLES, (), OPTIONAL), "what": what, "task": table["task"], "table": table,
             "name": f"task {table['task']}, Measure, {what}"}
            for table in tables() for what, row in table["row"].items() if "nothing" not in row]


def command_of(row):
    """What a student types for the row: the cell, with what the handout shortens put in."""
    if "command" in row:
        return row["command"]
    cell = rows_of_handout(row["task"])[row["what"]]
    codes = re.findall(r"`([^`]*)`", cell)
    short = row["table"].get("short", {})
    if "(a)" in cell:
        command = short["(a)"]
        for new, old in re.findall(r"`([^`]*)` in place of `([^`]*)`", cell):
            command = command.replace(old, new)
        more = re.sub(r"`[^`]*` in place of `[^`]*`", "", cell)
        return " ".join([command, *re.findall(r"`(--[^`]*)`", more)])
    code = codes[0]
    if code.startswith("--"):
        return f"{short['']} {code}"
    first, _, rest = code.partition(" ")
    return f"{short[first]} {rest}" if first in short else code


def here(command, table):
    """The same command on the reference solutions, without ./fsdp."""
    for long, quick in table.get("quicker", {}).items():
        command = command.replace(long, quick)
    words = shlex.split(command.partition(";")[0])
    if "--stack" in words:
        at = words.index("--stack")
        words[at:at + 2] = []
    if words[1] == "train":
        return (BUILD / "bin" / "reference_train", *words[2:])
    return (BUILD / "bin" / "check", *words[2:], "--stacks", "reference")


@functools.cache
def run(words):
    """The exit status; what the command prints, and what it writes into its folder."""
    with tempfile.TemporaryDirectory() as folder:
        done = claimed.run(words, folder)
        written = [path.read_text(errors="replace") for path in sorted(pathlib.Path(folder).iterdir())]
        return done.returncode, "\n".join([done.stdout, done.stderr, *written])


def hash_of(command, table):
    return re.findall(r"sha256 (\w+)", run(here(command, table))[1])


def play(row, arguments):
    command, table = command_of(row), row["table"]
    status, seen = run(here(command, table))
    if status != 0:
        return [f"{command}: ends with status {status}: {seen[-400:]}"]
    if arguments.show:
        print(f"--- {command}\n{seen[:20_000]}")
    wrong = [f"{command}: does not show {pattern}" for pattern in row["shows"]
             if not re.search(pattern, seen, re.MULTILINE)]
    wrong += [f"{command}: shows {pattern}" for pattern in row.get("lacks", ())
              if re.search(pattern, seen, re.MULTILINE)]
    for other in row.get("equal", ()):
        if hash_of(other, table) != hash_of(command, table):
            wrong.append(f"{command} and {other} have other hashes")
    said = normal(handout_of(row["task"]).read_text())
    for pattern, number, relative in row.get("near", ()):
        found = re.search(pattern, seen, re.MULTILINE)
        if number not in said:
            wrong.append(f"the handout does not say: {number}")
        if not found or abs(float(found[1]) / float(number) - 1) > relative:
            wrong.append(f"{command}: shows {found and found[1]}, which is not near {number}")
    return wrong + [f"the handout does not say: {words}" for words in row.get("says", ()) if words not in said]


def wrong_forms():
    """What is wrong before anything runs."""
    for table in tables():
        task = table["task"]
        asked, known = rows_of_handout(task), set(table["row"])
        for what in sorted(set(asked) ^ known):
            where = "measure.toml" if what in asked else "the handout"
            yield f"task {task}, Measure: {where} lacks the row '{what}'"
        said = normal(handout_of(task).read_text())
        for short in table.get("short", {}).values():
            if short not in said:
                yield f"task {task}, Measure: the handout does not say: {short}"
