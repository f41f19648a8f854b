"""The reference solutions with a change: the program of one task's tests, with one file compiled anew.

A change is an entry of a list with `file`, `old` and `new`, and with `old_2` and `new_2` if it has a
second place: in the file of that name of the task's solution or its extensions, each old text becomes the
new one. Uses the commands of build/default.
"""

import functools
import pathlib
import shlex
import shutil
import subprocess
import tempfile

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # noqa: F401

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "default"


class Refused(Exception):
    """A change that can't be made or built, and why."""


def paths_of(task):
    """Name -> path, of the files of a task's solution."""
    folders = [*(ROOT / "solutions").glob(f"task{task}_*"), *(ROOT / "solutions/extensions").glob(f"task{task}_*")]
    return {path.name: path for folder in folders for path in sorted(folder.glob("*.*"))}


def replaced(text, change, where):
    """The text with the change. Each old text must occur in it once."""
    for old, new in (("old", "new"), ("old_2", "new_2")):
        if old not in change:
            continue
        count = text.count(change[old])
        if count != 1 or change[old] == change[new] or not change[old].strip():
            raise Refused(f"{where}: its `{old}` occurs {count} times in {change['file']}, or nothing changes")
        text = text.replace(change[old], change[new])
    return text


def changed_text(task, change):
    where = change.get("name", change.get("command", "a change"))
    if change["file"] not in paths_of(task):
        raise Refused(f"{where}: task {task} has no file {change['file']}")
    return replaced(paths_of(task)[change["file"]].read_text(), change, where)


def prepare(*targets):
    """Builds these targets in build/default; ends this program if that fails."""
    if subprocess.run([ROOT / "fsdp", "build", *targets]).returncode:
        raise SystemExit(1)


@functools.cache
def command(target):
    """The one command with which ninja makes a target, as words."""
    done = subprocess.run(["ninja", "-t", "commands", "-s", target], cwd=BUILD, capture_output=True, text=True)
    words = shlex.split(done.stdout)
    if done.returncode or not words:
        raise Refused(f"build/default does not know {target}: run ./fsdp build {target.rpartition('/')[2]}")
    return [word for word in words if word not in (":", "&&")]


def call(words):
    done = subprocess.run(words, cwd=BUILD, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"does not build: {done.stderr.strip() or done.stdout.strip()}")


def compile_as(path, source, task, output):
    """Compiles `source` as the build compiles `path` of the task's solution; headers beside the output come first."""
    words = command(f"CMakeFiles/reference_task{task}.dir/{path.relative_to(ROOT)}.o")
    words[words.index("-o") + 1] = str(output)
    words[words.index("-MF") + 1] = f"{output}.d"
    words[words.index("-c") + 1] = str(source)
    # A change may leave a variable unused.
    call([words[0], f"-I{output.parent}", *(word for word in words[1:] if word != "-Werror")])


def link_with(task, objects, replaced_paths, program):
    """Links the tests of a task with these objects in place of those of the paths in its library."""
    library = f"libreference_task{task}.a"
    rest = shutil.copy(BUILD / library, program.with_name(library))
    call(["ar", "d", rest, *(f"{path.name}.o" for path in replaced_paths)])
    words = [rest if word == library else word for word in command(f"bin/reference_task{task}_tests")]
    words[words.index("-o") + 1] = str(program)
    call([*words[:words.index("-o")], *map(str, objects), *words[words.index("-o"):]])


def build(task, change, program):
    """Makes `program`: the tests of the task over the reference solutions with the change."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = {path: path.read_text() for path in paths_of(task).values()}
        changed = changed_text(task, change)
        texts[paths_of(task)[change["file"]]] = changed
        for path, text in texts.items():
            (folder / path.name).write_text(text)
        paths = [path for path, text in texts.items()
                 if path.suffix == ".cpp" and (path.name == change["file"] or change["file"] in text)]
        objects = [folder / f"{path.stem}.o" for path in paths]
        for path, compiled in zip(paths, objects):
            compile_as(path, folder / path.name, task, compiled)
        link_with(task, objects, paths, program)


def run(program, tests, seconds):
    """Exit status and output of the tests: SUITE.NAME, or "*" for all. A program that does not end within
    `seconds` is killed, with the status None."""
    names = ":".join(f"{test}:{test}/*" if test != "*" else test for test in tests)
    words = [program, f"--gtest_filter={names}", "--gtest_brief=1"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               cwd=program.parent)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        return None, output.decode(errors="replace")
    return process.returncode, output.decode(errors="replace")


def add_options(parser):
    parser.add_argument("--part", metavar="I/N", help="only the I-th of N parts of the list")
    parser.add_argument("--totals", metavar="FILE", help="add 'passed failed skipped' to FILE")


def part_of(entries, arguments):
    if not arguments.part:
        return entries
    part, parts = map(int, arguments.part.split("/"))
    begin, end = (len(entries) * (part % parts + i) // parts for i in (0, 1))
    return entries[begin:end]


def add_totals(arguments, passed, failed, skipped=0):
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{passed} {failed} {skipped}\n")
