"""The skeletons: the C++ files of tasks/ as students get them. A handout has them in .pristine/; in
the course's own repository, tasks/ of the last commit has them."""

import pathlib
import subprocess

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10 has no tomllib
    from pip._vendor import tomli as tomllib  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[2]


def printable(text):
    """Returns the text with an escape code for each character that can't be printed. Names and
    texts of submissions may have any characters; the codes have no effect on terminals and are
    valid in every file format."""
    text = text.encode(errors="backslashreplace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def one_line(text):
    """Returns printable(text) in one line, without line feeds and tabs, for names."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


class Refused(Exception):
    """Raised if something can't be graded or done. Its text is the reason, made printable."""

    def __init__(self, why):
        super().__init__(printable(str(why)))


def folder_of(task):
    return f"task{task['number']}_{task['name']}"


def folders_of(folder):
    """Returns the two folders, relative to solutions/ or tasks/, with the files of a task: the
    task's own folder, and that of its extensions."""
    return folder, f"extensions/{folder}"


def is_source(path):
    return path.endswith((".h", ".cpp"))


def delivered(root=ROOT):
    """Returns a dict, path -> content of every C++ file of tasks/ as it was delivered to
    students."""
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
    """Compares tasks/ with `files`: path -> content. Yields a line for each C++ file of tasks/ that
    is missing, has another content or is not in `files`."""
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
