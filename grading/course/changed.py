"""A test program over the reference solutions, with one of their files changed.

The changed file is compiled as the build compiles the file, and linked in front of the libraries: what
it defines is then not taken from them. So nothing else is compiled, and the build stays as it is.
"""

import contextlib
import functools
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import tempfile

from grader import course
from grader.course import BUILD, ROOT, Refused

SECONDS = 300  # that the tests of a task may take


@functools.cache
def commands(target):
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{target}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return done.stdout.splitlines()


def changed(claim):
    """The text of the claim's file with its change."""
    text = (ROOT / "solutions" / claim["file"]).read_text()
    for which in ("", "_2"):
        if f"old{which}" not in claim:
            continue
        if (count := text.count(claim[f"old{which}"])) != 1:
            raise Refused(f"{claim['name']}: its old lines are {count} times in {claim['file']}")
        text = text.replace(claim[f"old{which}"], claim[f"new{which}"])
    return text


def call(words):
    done = subprocess.run(words, cwd=BUILD, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{done.stdout[-600:]}{done.stderr[-600:]}")


def compile_file(target, source, text, folder):
    """The object of the file with this text."""
    line = next(line for line in commands(target) if line.endswith(f"-c {ROOT / 'solutions' / source}"))
    words = shlex.split(line)
    for option in ("-MT", "-MF", "-o", "-c"):
        at = words.index(option)
        words[at:at + 2] = []
    words.remove("-MD")
    path, made = folder / pathlib.Path(source).name, folder / "changed.o"
    path.write_text(text)
    call([*words, "-Wno-error", "-o", made, "-c", path])
    return made


def link(target, made, program):
    line = next(line for line in commands(target) if f" -o bin/{target} " in line)
    words = shlex.split(line.removeprefix(": && ").removesuffix(" && :"))
    at = words.index("-o")
    call([*words[:at], made, "-o", program, *words[at + 2:]])


@contextlib.contextmanager
def check(task, claim, stack):
    """A folder with `check` and the tests of the task, which `check` takes for those of `stack`."""
    target = f"reference_task{task}_tests"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = compile_file(target, claim["file"], changed(claim), folder)
        link(target, made, folder / f"{stack}_task{task}_tests")
        shutil.copy2(BUILD / "bin" / "check", folder / "check")
        yield folder


def environment():
    return {**os.environ, "FSDP_ROOT": str(ROOT)}


def tests(task, what, claim):
    """What `check WHAT --json` says of each test."""
    with check(task, claim, "mine") as folder:
        words = [folder / "check", what, "--stacks", "mine", "--seconds", str(SECONDS), "--json", folder / "out"]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True)
        if not (folder / "out").exists():
            raise Refused(f"check {what} gives no result: {done.stderr[-300:]}")
        return json.loads((folder / "out").read_text())["tests"]


def build(*targets):
    if subprocess.run([ROOT / "fsdp", "build", *targets], stdout=subprocess.DEVNULL).returncode != 0:
        raise Refused("the reference solutions or their tests do not build")


def problem_of(test):
    suite = test.partition(".")[0]
    return next(p.number for task in course.tasks() for p in task.problems if suite in p.suites)
