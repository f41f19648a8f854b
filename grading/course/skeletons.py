#!/usr/bin/env python3
"""Makes tasks/, what a student starts from, out of solutions/ and course.toml.

A header loses what follows the line "// How this solution goes about it." in a class. Of a .cpp file
remain the functions that course.toml names: those of a problem with a body that says todo(), the
given ones as they are. --check compares instead of writing; else tasks/ is written anew.
"""

import argparse
import pathlib
import re
import sys

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DIVIDER = "// How this solution goes about it."


def printable(text):
    """Names and texts from outside may hold anything: what can't be printed is shown by its code, so that no
    terminal obeys it and every format of files takes it."""
    text = text.encode(errors="backslashreplace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def one_line(text):
    """The same for names, which make no line and no column of their own."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class Refused(Exception):
    """What can't be graded, or made a skeleton of, and why, as it can be printed."""

    def __init__(self, why):
        super().__init__(printable(str(why)))


def items(text):
    """The definitions of a .cpp file, each with the comment above it, and the lines between.

    Relies on the format: a definition begins in the first column and ends with a closing brace, or
    a semicolon, that is in no deeper one.
    """
    result, item, open_body = [], [], False
    for line in text.splitlines():
        if re.match(r"(#|namespace\b|\} +// namespace)", line) or (not line and not open_body):
            if item:  # a comment that belongs to nothing
                result.append(item)
            result.append([line])
            item = []
            continue
        item.append(line)
        first = not line.startswith((" ", "//", "}"))
        if first:
            open_body = True
        ends = line in ("}", "};") or (first and line.endswith((";", "{}", "}")))
        continued = open_body and not first and line.startswith("    ") and line.endswith(";")
        if ends or (continued and not any(l.endswith("{") for l in item)):
            result.append(item)
            item, open_body = [], False
    return result + ([item] if item else [])


def name_of(item):
    """The name of the function that an item defines, "Class::function" for a member; else None."""
    code = " ".join(line.strip() for line in item if not line.startswith("//"))
    match = re.match(r"[^(={]*?([\w:~]+)\(", code)
    return match.group(1) if match and not code.startswith(("struct", "class", "using")) else None


def signature(item):
    """All of a function's definition before its body and its member initializers."""
    code = [line for line in item if not line.startswith("//")]
    text, depth, seen = "\n".join(code), 0, False
    for at, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        seen = seen or char == "("
        if seen and depth == 0:
            qualifier = " const" if text[at + 1 :].startswith(" const") else ""
            return text[: at + 1] + qualifier
    raise Refused(f"no parameter list in: {code[0]}")


def symbol_of(item, problems):
    """The symbol that names what an item defines: with the parameters, as one of several overloads; else
    without them. None if there is none."""
    name = name_of(item)
    if name is None:
        return None
    overload = name + " ".join(signature(item).split()).partition(name)[2]
    return next((symbol for symbol in (overload, name) if symbol in problems), None)


def skeleton_of_source(text, problems, given, opaque):
    """`problems`: symbol -> problem's number; `opaque`: structs that the header only declares."""
    found, lines, anonymous = set(), [], False
    for item in items(text):
        name, symbol = name_of(item), symbol_of(item, problems)
        first = item[0]
        if first.startswith("#include"):
            lines.append(first)
        elif not first and lines and lines[-1].startswith("#include"):
            lines.append("")
        elif first == "namespace {":
            anonymous = True
        elif first == "}  // namespace":
            anonymous = False
        elif first.startswith(("namespace", "} ")):
            lines += ["", first, ""]
        elif symbol and not anonymous:
            found.add(symbol)
            lines += [f'{signature(item)} {{\n  todo("{name}", "{problems[symbol]}");\n}}', ""]
        elif name in given or (name and item[-1].endswith("= default;")):
            body = "\n".join(item)
            lines += [f"namespace {{\n\n{body}\n\n}}  // namespace" if anonymous else body, ""]
    missing = set(problems) - found
    own = lines.index("") if "" in lines else len(lines)  # the includes before the standard library's
    lines[:own] = sorted(lines[:own] + ["#include <base/todo.h>"])
    text = "\n".join(lines)
    for struct in opaque:
        text = text.replace("namespace fsdp {\n", f"namespace fsdp {{\n\nstruct {struct} {{}};\n", 1)
    text = text.replace("}  // namespace\n\nnamespace {\n\n", "")
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n", missing


def skeleton_of_header(text):
    """Without what belongs to the solution alone."""
    lines, cutting = [], False
    for line in text.splitlines():
        if line.strip() == DIVIDER:
            cutting = True
            lines.append("  // Add what you need.")
        if line == "};":
            cutting = False
        if not cutting:
            lines.append(line)
    return "\n".join(lines) + "\n"


def folder_of(task):
    return f"task{task['number']}_{task['name']}"


def folders_of(folder):
    """Where a task's files lie, in solutions/ and in tasks/: what it asks for, and its extensions."""
    return folder, f"extensions/{folder}"


def skeleton_of_task(solutions, task):
    """Path in tasks/ -> text."""
    problems = {
        symbol: problem["number"]
        for problem in task["problem"]
        for symbol in problem.get("symbols", [])
    }
    given = set(task.get("given", []))
    files, missing = {}, set(problems)
    paths = {
        f"{folder}/{path.name}": path
        for folder in folders_of(folder_of(task))
        for path in sorted((solutions / folder).glob("*"))
    }
    headers = {name: path.read_text() for name, path in paths.items() if path.suffix == ".h"}
    opaque = {
        name
        for text in headers.values()
        for name in re.findall(r"^struct (\w+);", text, re.MULTILINE)
    }
    for name, text in headers.items():
        files[name] = skeleton_of_header(text)
    for file, path in paths.items():
        if path.suffix != ".cpp":
            continue
        text = path.read_text()
        if path.name in given:
            files[file] = text
            continue
        local = {s for s in opaque if re.search(rf"^struct {s} {{", text, re.MULTILINE)}
        skeleton, left = skeleton_of_source(text, problems, given, local)
        files[file] = skeleton
        missing &= left
    if missing:
        raise Refused(
            f"{folder_of(task)}: course.toml names {', '.join(sorted(missing))}, defined nowhere"
        )
    return files


def generated(root=ROOT):
    """Path -> text, of every file that is made."""
    course = tomllib.loads((root / "course.toml").read_text())
    files = {}
    for task in course["task"]:
        for name, text in skeleton_of_task(root / "solutions", task).items():
            files[f"tasks/{name}"] = text
    return files


def sources_in(root):
    """The paths of the C++ files in tasks/."""
    for path in (root / "tasks").rglob("*"):
        if path.suffix in (".h", ".cpp"):
            yield str(path.relative_to(root))


def differences(files, root=ROOT):
    """One line for each file that is not what it should be."""
    for name in sorted({*files, *sources_in(root)}):
        path = root / name
        if name not in files:
            yield f"{name}: nothing makes it"
        elif not path.exists():
            yield f"{name}: is missing"
        elif path.read_text() != files[name]:
            yield f"{name}: is not what grading/course/skeletons.py makes"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--into", type=pathlib.Path, default=ROOT, help="another folder to write to")
    arguments = parser.parse_args()
    try:
        files = generated()
    except Refused as refused:
        sys.exit(f"skeletons: {refused}")
    if arguments.check:
        sys.exit("\n".join(differences(files)) or 0)
    if arguments.into != ROOT:  # a first state, in which nothing may stay of an earlier one
        for name in {*sources_in(arguments.into)} - set(files):
            (arguments.into / name).unlink()
    for name, text in files.items():
        path = arguments.into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
