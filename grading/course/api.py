#!/usr/bin/env python3
"""Makes docs/api.md: what each header of library/fsdp.h promises, as the header itself says it.

Without options this writes the page anew; with --check it prints what is out of date.
"""

import argparse
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handout  # noqa: E402

ROOT = handout.ROOT
LIST = "library/fsdp.h"
PAGE = ROOT / "docs" / "api.md"
INTRODUCTION = """# The library

This page is made from the headers that `<fsdp.h>` includes: `grading/course/api.py` writes it, and
`scripts/lint.sh` compares the two. [README.md](../README.md#use-it-in-a-project-of-your-own) says how to
install the library, and [from_pytorch.md](from_pytorch.md) what stands for which call of PyTorch's FSDP.
"Extension" and "the handout" mean the course, which this library is the solution of. Everything is in
the namespace `fsdp`. Lengths in brackets, as `[n]`, are shapes, or the unit of a number.
"""

# A class ends with the first line "};"; all else at the first line that ends with ";" or is "}".
OPENS_CLASS = re.compile(r"(class|struct|enum)\b.*\{$")
FORWARD = re.compile(r"(class|struct|enum class) [\w:]+;")
# What Markdown would take for a tag or for emphasis, after what it leaves alone: code in backquotes.
SPECIAL = re.compile(r"((?:`[^`]*`|[^`<*])*)([<*])")
NAME = re.compile(r"(?:class|struct|enum class|using) (?:\[\[\w+\]\] )?(\w+)|(\w+)(?=\(|\{|;| =)")


def chapters(text):
    """The chapters of library/fsdp.h: a title and the headers under it."""
    for paragraph in text.split("\n\n"):
        included = re.findall(r"^#include <(.*)>$", paragraph, re.MULTILINE)
        if included:
            yield paragraph.splitlines()[0].removeprefix("// ").rstrip("."), included


def body(header):
    """Comments before the namespace, and the lines inside it."""
    before, _, inside = header.partition("\nnamespace fsdp {\n")
    comments = [line for line in before.splitlines() if line.startswith("//")]
    return comments, inside.partition("\n}  // namespace fsdp")[0].splitlines()


def entities(lines):
    """(namespace below fsdp, leading comments, lines of code) of each declaration. What follows without a
    blank line or a comment is one with it."""
    space, comments, code = "", [], []
    left = iter([*lines, ""])
    for line in left:
        if line and not line.startswith(("//", "namespace ", "}  // namespace ")):
            if line.startswith("template <"):
                code.append(line)
                line = next(left)
            end = ("};",) if OPENS_CLASS.match(line) else None
            code.append(line)
            while not (line in end if end else is_end(line)):
                line = next(left)
                code.append(line)
            continue
        if code:
            yield space, comments, code
            comments, code = [], []
        if line.startswith("//"):
            comments.append(line)
        elif not line:
            comments = []
        else:
            space = line.split()[1] + "::" if line.startswith("namespace ") else ""


def is_end(line):
    """Whether it ends a declaration that is no class."""
    return line == "}" or line.partition("//")[0].rstrip().endswith(";")


def without_private(code):
    """The lines of a declaration that a user may use; none of what a class inside it hides either."""
    hidden = None  # how far the class is indented whose private part this is
    for line in code:
        label = re.match(r"( *) (private|public):$", line)
        if label and (hidden is None or label[1] == hidden):
            hidden = label[1] if label[2] == "private" else None
        elif hidden is not None and line == hidden + "};":
            hidden = None
        if hidden is None and "friend " not in line:
            yield line


def shown(code):
    lines = "\n".join(without_private(code))
    return re.sub(r"\n\n(?= *\};)", "\n", lines)


def names(code):
    """What the declaration declares, without repeats."""
    code = [line for line in code if not line.startswith("template <")]
    if OPENS_CLASS.match(code[0]):
        return [NAME.search(code[0])[1]]
    found = []
    for line in code:
        if re.match(r"\S", line) and not line.startswith(("}", ")")):
            kind, other = NAME.search(line).groups()
            found.append(kind or other)
    return list(dict.fromkeys(found))


def prose(comments):
    """A comment as Markdown. What is indented is the rest of an item of a list, or else an example."""
    lines, kind = [], "text"
    for comment in comments:
        line, before = comment.removeprefix("//").removeprefix(" "), kind
        if line.startswith("- "):
            kind = "item"
        elif not line.startswith("  "):
            kind = "text"
        elif kind != "item":
            kind = "example"
        if kind != before:
            lines.append("")
        lines.append("  " + line if kind == "example" else re.sub(SPECIAL, r"\1\\\2", line))
    return "\n".join(lines).lstrip("\n")


def section(path):
    """The part of the page that is about one header."""
    header = (ROOT / path).read_text()
    before, lines = body(header)
    include = re.sub(r"^(common|library|trainer|solutions(/extensions)?/[^/]*)/", "", path)
    yield f"### `<{include}>`\n"
    if before:
        yield prose(before) + "\n"
    for space, comments, code in entities(lines):
        if not comments and all(FORWARD.match(line) for line in code):
            continue
        yield f"#### {', '.join(f'`{space}{name}`' for name in names(code))}\n"
        if comments:
            yield prose(comments) + "\n"
        yield f"```cpp\n{shown(code)}\n```\n"


def page():
    files = [name for name in handout.tracked() if name.startswith(("common/", "library/", "solutions/", "trainer/"))]
    parts = [INTRODUCTION]
    for title, headers in chapters((ROOT / LIST).read_text()):
        parts.append(f"## {title}\n")
        for header in headers:
            parts += section(next(name for name in files if name.endswith("/" + header)))
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what is out of date")
    new = page()
    if not parser.parse_args().check:
        PAGE.write_text(new)
    elif not PAGE.exists() or PAGE.read_text() != new:
        sys.exit("docs/api.md is not what the headers say: run grading/course/api.py")


if __name__ == "__main__":
    main()
