#!/usr/bin/env python3
"""The table of promises, grading/contracts.toml: for every sentence of a contract, what asks for it.

A contract is the public part of a task's headers, and what a handout says under "Invariants" and
"Easy to get wrong" and does not put as a question. The table gives each sentence the list of the faults
of the bank that break it; the test of each must turn red. A sentence that promises nothing has a text
instead, which says why.
Without an option, prints each sentence with its tests.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from skeletons import ROOT, tomllib  # noqa: E402

TABLE = ROOT / "grading" / "contracts.toml"
BANK = ROOT / "grading" / "instruments" / "faults"

# Where a sentence ends: not inside a number or a name.
END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!]\)))\s+(?=[A-Z`(])")


def sentences(text):
    """What a text states, with single blanks. A question and the head of a list state nothing."""
    found = END.split(" ".join(text.split()))
    return [sentence for sentence in found if sentence and sentence.rstrip(")")[-1:] not in "?:"]


def comments_of(header):
    """The comments of a header before and after its private parts: a block or a line's end each."""
    block, private = [], False
    for line in header.splitlines():
        private = (private or line == " private:") and line not in (" public:", "};")
        code, mark, comment = line.partition("//") if line[:1] != "}" else (line, "", "")
        whole = mark and not code.strip()
        if block and (not whole or comment.startswith(" - ")):
            yield "\n".join(block)
            block = []
        if private or re.match(r" {3}.*;", comment):
            continue  # an example
        if whole:
            block.append(comment.removeprefix(" - "))
        elif mark:
            yield comment


def items_of(handout):
    """The items, or the paragraph, that say what holds and what is easy to get wrong."""
    for section in re.split(r"^## ", handout, flags=re.MULTILINE):
        if section.startswith("Invariants\n"):
            yield from re.split(r"^- ", section, flags=re.MULTILINE)[1:]
        for part in section.split("Easy to get wrong:")[1:]:
            paragraph = re.split(r"(?i)\n\n|(?:libtorch )?worth\s+knowing:", part.lstrip())[0]
            yield from re.split(r"^- ", paragraph, flags=re.MULTILINE)


def contracts():
    """(file, sentence) of everything that is to be asked for, in the order of the course."""
    patterns = ("solutions/task*/*.h", "solutions/extensions/task*/*.h", "tasks/task*/README.md")
    paths = sorted((path for pattern in patterns for path in ROOT.glob(pattern)),
                   key=lambda path: (path.parent.name, path.name == "README.md", path.name))
    for path in paths:
        file = path.relative_to(ROOT).as_posix().partition("/")[2]
        parts = items_of if path.name == "README.md" else comments_of
        seen = set()
        for part in parts(path.read_text()):
            for sentence in sentences(part):
                if sentence not in seen:
                    seen.add(sentence)
                    yield file, sentence


def faults():
    """Name of a fault -> the test that catches it."""
    banks = [tomllib.loads(path.read_text()) for path in sorted(BANK.glob("task*.toml"))]
    return {fault["name"]: fault["test"] for bank in banks for fault in bank["fault"]}


def entries():
    """(file, sentence, the faults that break it or the text of what it explains)."""
    for file, table in tomllib.loads(TABLE.read_text()).items():
        for sentence, what in table.items():
            yield file, sentence, what


def problems():
    """What is wrong with the table."""
    known, tests, seen = list(contracts()), faults(), set()
    for file, sentence, what in entries():
        seen.add((file, sentence))
        where = f"{file}: '{sentence}'"
        if (file, sentence) not in known:
            yield f"{where} is not in its text"
        if not what:
            yield f"{where} has no fault"
        for fault in what if isinstance(what, list) else ():
            if fault not in tests:
                yield f"{where}: there is no fault {fault}"
    for file, sentence in known:
        if (file, sentence) not in seen:
            yield f"{file}: no test asks for '{sentence}'"


def missing(task):
    """Entries to fill in."""
    seen = {(file, sentence) for file, sentence, _ in entries()}
    for file, sentence in contracts():
        of_task = file.removeprefix("extensions/").startswith(f"task{task}_")
        if of_task and (file, sentence) not in seen:
            yield f"{file}\n{json.dumps(sentence, ensure_ascii=False)} = []"


def listing():
    tests, asked, used, texts = faults(), set(), set(), []
    for file, sentence, what in entries():
        found = set(what) if isinstance(what, list) else set()
        names = sorted({tests[fault] for fault in found})
        asked.update(names)
        used |= found
        texts.append(bool(names))
        yield f"{file}: {sentence}"
        yield from (f"    {name}" for name in names or [f"explains {what}"])
    yield f"{len(texts)} sentences, {sum(texts)} promises; {len(asked)} tests, {len(used)} faults"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what is wrong; exit with 1")
    parser.add_argument("--missing", type=int, metavar="TASK", help="print entries to fill in")
    arguments = parser.parse_args()
    if arguments.missing:
        print("\n".join(missing(arguments.missing)))
        return
    if arguments.check:
        sys.exit("\n".join(problems()) or 0)
    print("\n".join(listing()))


if __name__ == "__main__":
    main()
