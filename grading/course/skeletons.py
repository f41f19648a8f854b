"""The skeletons: the C++ files of tasks/ as students get them. In a handout .pristine/ has them, in
the course's own repository its last commit."""

import pathlib
import subprocess

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]


def printable(text):
    """Names and texts from outside may hold anything: what can't be printed is shown by its code,
    so that no terminal obeys it and every format of files takes it."""
    text = text.encode(errors="backslashreplace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def one_line(text):
    """The same for names, which make no line and no column of their own."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class Refused(Exception):
    """What can't be graded, and why, as it can be printed."""

    def __init__(self, why):
        super().__init__(printable(str(why)))


def folder_of(task):
    return f"task{task['number']}_{task['name']}"


def folders_of(folder):
    """Where a task's files lie, in solutions/ and in tasks/: what it asks for, and its
    extensions."""
    return folder, f"extensions/{folder}"


def is_source(path):
    return path.endswith((".h", ".cpp"))


def delivered(root=ROOT):
    """Path -> content, of every C++ file of tasks/."""
    pristine = root / ".pristine"
    if pristine.is_dir():
        return {f"tasks/{path.relative_to(pristine).as_posix()}": path.read_bytes()
                for path in sorted(pristine.rglob("*")) if is_source(path.name)}

    def git(*arguments):
        return subprocess.run(
            ["git", "-C", root, *arguments], capture_output=True, check=True
        ).stdout

    names = git("ls-tree", "-r", "--name-only", "HEAD", "tasks/").decode().splitlines()
    return {name: git("show", f"HEAD:{name}") for name in names if is_source(name)}


def differences(files, root=ROOT):
    """One line for each C++ file of tasks/ that is not what it should be."""
    here = {
        path.relative_to(root).as_posix()
        for path in (root / "tasks").rglob("*")
        if is_source(path.name)
    }
    for name in sorted({*files, *here}):
        path = root / name
        if name not in files:
            yield f"{name}: is no skeleton"
        elif not path.exists():
            yield f"{name}: is missing"
        elif path.read_bytes() != files[name]:
            yield f"{name}: is not the skeleton"
