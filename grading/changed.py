"""Builds the test program of a task, linked with the reference solutions, one file of which is
changed.

A change is an entry of a bank (faults/taskN.toml or course/samples.toml) with `file`, `old` and
`new`, and with `old_2` and `new_2`, `old_3` and `new_3` if it changes several places. `file` names
a file of the task's solution or of its extensions. In this file, each old text is replaced by its
new text. Only this file and the .cpp files that name it are compiled again, with the commands of
build/default.
"""

import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

from grader.course import BUILD, ROOT, Refused
from grader.programs import command_for


def paths_of(task):
    """Returns a dict, name of a file -> its path, for the files of the task's reference solution
    and of its extensions."""
    return {path.name: path for path in sorted((ROOT / "solutions").rglob(f"task{task}_*/*.*"))}


def replaced(text, change, where):
    """Returns `text` with each old text of `change` replaced by its new text. Raises Refused unless
    each old text occurs in `text` exactly once and differs from its new text."""
    for old in [name for name in change if re.fullmatch(r"old(_\d)?", name)]:
        new = old.replace("old", "new")
        count = text.count(change[old])
        if count != 1 or change[old] == change[new] or not change[old].strip():
            raise Refused(
                f"{where}: its `{old}` occurs {count} times in {change['file']}, and must occur "
                f"once; or old and new text are equal"
            )
        text = text.replace(change[old], change[new])
    return text


def changed_text(task, change):
    if change["file"] not in paths_of(task):
        raise Refused(f"{change['name']}: task {task} has no file {change['file']}")
    return replaced(paths_of(task)[change["file"]].read_text(), change, change["name"])


def prepare(*targets):
    """Builds the `targets` in build/default. Ends this program if the build fails."""
    if subprocess.run([ROOT / "fsdp", "build", *targets]).returncode:
        raise SystemExit(1)


def jobs():
    """Returns how many compilers ./fsdp runs at the same time on this machine."""
    script = 'root=$0; source "$0/scripts/build.sh"; jobs_of_build'
    return int(
        subprocess.run(
            ["bash", "-c", script, ROOT], capture_output=True, text=True, check=True
        ).stdout
    )


def command(target):
    """Returns the command with which ninja makes a target, as a list of words."""
    return [word for word in shlex.split(command_for(target)) if word not in (":", "&&")]


def call(words):
    done = subprocess.run(words, cwd=BUILD, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"does not build: {done.stderr.strip() or done.stdout.strip()}")


def compile_as(path, source, task, output):
    """Compiles `source`, a changed copy of `path`, a file of the task's solution, with the command
    with which the build compiles `path`. A header in the folder of `output` is used in place of the
    header of the same name in solutions/. The object's debug information names `path` and not
    `source`."""
    words = command(f"CMakeFiles/reference_task{task}.dir/{path.relative_to(ROOT)}.o")
    words[words.index("-o") + 1] = str(output)
    words[words.index("-MF") + 1] = f"{output}.d"
    words[words.index("-c") + 1] = str(source)
    # Compiles without -Werror, because a change may leave a variable unused.
    named = [f"-I{output.parent}", f"-fdebug-prefix-map={source.parent}={path.parent}"]
    call([words[0], *named, *(word for word in words[1:] if word != "-Werror")])


def link_with(task, objects, replaced_paths, program, target=None):
    """Links a program of build/default into `program`: `target`, or else the test program of the
    task. In the task's reference library, `objects` replace the objects of the source files
    `replaced_paths`."""
    library = f"libreference_task{task}.a"
    rest = shutil.copy(BUILD / library, program.with_name(library))
    call(["ar", "d", rest, *(f"{path.name}.o" for path in replaced_paths)])
    words = [
        rest if word == library else word
        for word in command(target or f"bin/reference_task{task}_tests")
    ]
    words[words.index("-o") + 1] = str(program)
    call([*words[:words.index("-o")], *map(str, objects), *words[words.index("-o"):]])


def build(task, change, program, target=None):
    """Makes `program`: the test program of the task, or `target`, another program of build/default;
    linked with the reference solutions and the change."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = {path: path.read_text() for path in paths_of(task).values()}
        changed = changed_text(task, change)
        texts[paths_of(task)[change["file"]]] = changed
        for path, text in texts.items():
            (folder / path.name).write_text(text)
        paths = [
            path
            for path, text in texts.items()
            if path.suffix == ".cpp" and (path.name == change["file"] or change["file"] in text)
        ]
        objects = [folder / f"{path.stem}.o" for path in paths]
        for path, compiled in zip(paths, objects):
            compile_as(path, folder / path.name, task, compiled)
        link_with(task, objects, paths, program, target)


def tests_in(program):
    """Returns a list with "SUITE.NAME" of each test of a program. A test that runs on several
    numbers of ranks is in the list once for each of them, as "SUITE.NAME/W1", "SUITE.NAME/W2" and
    so on."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        if line.startswith("  "):
            names.append(suite + line.split()[0])
        else:
            suite = line.split("#")[0].strip()
    return names


def run(program, test, seconds):
    """Runs the test SUITE.NAME. Returns the exit status and the output. A program that does not end
    within `seconds` is killed; its status is None."""
    words = [program, f"--gtest_filter={test}:{test}/*", "--gtest_brief=1"]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=program.parent,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as expired:
        return None, (expired.output or b"").decode(errors="replace")
    return done.returncode, done.stdout.decode(errors="replace")
