"""Compiles the .cpp files of a submission, and inspects the objects (scripts/look.sh). Each file is
compiled only once, in a sandbox that can read headers but no secret; the test programs of all tasks
link the same object."""

import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time

from grader import course, sandbox, session, submission
from grader.course import BUILD, ROOT, Refused
from grader.sandbox import KEPT

OBJECTS = KEPT / "objects"
MOST_KEPT = 1_000_000_000  # [bytes] limit for the folder OBJECTS
AT_A_TIME = 2
LOOK = ROOT / "scripts" / "look.sh"
TOO_MUCH, NO_TIME = (
    "error: the compiler prints too much\n",
    "error: the time for compiling was over\n",
)
ALL_TIME = (
    "does not compile:\nerror: the files of this submission took longer to compile than all "
    "together may take"
)
NO_REASON = "does not build, and the compiler gives no reason"

# Errors that a full or busy machine causes. The student's code may be right: another submission may
# have used up the memory or the disk.
MACHINE = re.compile(
    r"No space left on device|[Ss]ignal 9\b|was killed: Killed|Killed signal terminated program|"
    r"exit\(137\)|Resource temporarily unavailable|out of memory|[Cc]annot allocate memory"
)


@dataclasses.dataclass(frozen=True)
class Compiled:
    path: object = None  # path of the object; None: it was not made
    why: str = ""  # why there is no object


@functools.cache
def commands():
    """Returns a dict, path in tasks/ -> the build's command that compiles this file, as a list of
    words."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if ROOT / "tasks" in path.parents and "solutions/" not in entry["command"].replace(
            entry["file"], ""
        ):
            found.setdefault(
                path.relative_to(ROOT / "tasks").as_posix(), shlex.split(entry["command"])
            )
    return found


def command_of(name, folder, out):
    """Returns the command that compiles the file `name` in `folder`, a copy of tasks/, into `out`.
    If the course has no such file, because it is the student's own, uses the command of another
    file of its task."""
    of_task = [other for other in commands() if other.split("/")[-2] == name.split("/")[-2]]
    neighbour = name if name in of_task else next(iter(of_task), None)
    if neighbour is None:
        raise Refused(f"the build has no command for tasks/{name}: delete {BUILD} and grade again")
    words = list(commands()[neighbour])
    words[words.index("-o") + 1] = str(out)
    words[words.index("-c") + 1] = str(ROOT / "tasks" / name)
    return [
        word.replace(f"{ROOT}/tasks", str(folder))
        for word in words
        if not word.startswith("-Werror")
    ]


@functools.cache
def read_by_compilers():
    """Returns the paths that the sandboxed compiler may read besides the system's: the headers of
    common/, the precompiled header, LibTorch's headers, and the compiler's folder."""
    words = [word for command in commands().values() for word in command]
    named = {words[i + 1] for i, word in enumerate(words) if word == "-isystem"}
    compiler = pathlib.Path(words[0]).resolve()
    seen = {
        ROOT / "common",
        ROOT / "cmake" / "pch.h",
        BUILD / "CMakeFiles" / "fsdp_memory.dir",
        *map(pathlib.Path, named),
        compiler.parent.parent,
    }
    return sorted(
        path
        for path in seen
        if path.exists() and not str(path.resolve()).startswith(sandbox.SYSTEM)
    )


@functools.cache
def code():
    """Returns a hash of everything that an object depends on besides the submission and its
    compiler command. The modification time of the precompiled header stands for the compiler and
    LibTorch, because the build makes this header again if one of them changes."""
    headers = [path for name in ("cmake", "common", "tasks") for path in (ROOT / name).rglob("*.h")]
    precompiled = (BUILD / "CMakeFiles" / "fsdp_memory.dir").glob("*.[gp]ch")
    made = [path.stat().st_mtime_ns for path in precompiled]
    return f"{course.digest(headers)} {made}"


def key_of(handed_in, name):
    content = submission.digest({**handed_in.headers, name: handed_in.files[name]})
    command = " ".join(command_of(name, "tasks", "made.o"))
    return hashlib.sha256(f"{code()} {command} {content}".encode()).hexdigest()[:32]


def remove_old():
    """Removes object files of earlier gradings from the folder OBJECTS, the least recently used
    ones first, until the others have at most MOST_KEPT bytes."""
    found = sorted(OBJECTS.glob("*.o"), key=lambda path: path.stat().st_mtime, reverse=True)
    size = 0
    for path in found:
        size += path.stat().st_size
        if size > MOST_KEPT:
            path.unlink(missing_ok=True)


def run_limited(command, seconds, cwd=None):
    """Runs the command. Returns its exit status and its output; the status is None if the command
    was ended because it printed too much or took too long."""
    most = course.rubric()["limits"]["log_characters"]
    with subprocess.Popen(
        session.bound(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=cwd,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        with concurrent.futures.ThreadPoolExecutor(1) as reader:
            log = reader.submit(process.stdout.read, most)
            try:
                text = log.result(seconds).decode(errors="replace")
                ended = TOO_MUCH if len(text) >= most else ""
                if not ended:
                    process.wait(seconds)
            except (concurrent.futures.TimeoutError, subprocess.TimeoutExpired):
                text, ended = "", NO_TIME
            finally:
                session.end(process)
    return (None, text[:100_000] + "\n" + ended) if ended else (process.returncode, text)


def first_errors(log, places=()):
    """Returns the lines of a compiler's or linker's output that show errors, at most five, first
    those in files of the student. `places`: folder -> the text that replaces its path."""
    shown = {}  # a dict as an ordered set
    for line in log.splitlines():
        if re.match(r" *\d* *\|", line):  # the compiler quotes a source line
            continue
        if re.search(
            r"[Ee]rror:|undefined reference|undefined symbol|multiple definition|duplicate symbol",
            line,
        ) or MACHINE.search(line):
            for place, name in (*places, (f"{BUILD}/", ""), (f"{ROOT}/", "")):
                line = line.replace(place, name)
            shown[line[:2000]] = True
    own = [line for line in shown if "tasks/" in line]
    machine = [line for line in shown if MACHINE.search(line) and line not in own]
    return "\n".join([*(own or shown), *machine][:5]) or NO_REASON


class Compiler:
    """Compiles the .cpp files of one submission, and inspects the object files with
    scripts/look.sh. `job`: the folder for the files that are made while the submission is
    graded."""

    def __init__(self, handed_in, job):
        self.submission, self.job = handed_in, pathlib.Path(job)
        self.folder, self.made = self.job / "tasks", {}
        for name, content in {**course.headers(), **handed_in.files}.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.rejected, self.stopped, self.remarks = {}, {}, {}  # file name -> findings of look.sh
        self.left = course.rubric()["limits"][
            "submission_build_seconds"
        ]  # [s] of compiling that are left for the whole submission

    def compile(self, names, on_step=None):
        """Compiles those of the files `names` that are not compiled yet. Afterwards self.made has
        the Compiled of each file. Calls on_step("3/25") after each file."""
        names = [name for name in dict.fromkeys(names) if name not in self.made]
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            for name in names:
                self.made[name] = pool.submit(self.one, name)
            for done, name in enumerate(names):
                self.made[name] = self.made[name].result()
                if on_step:
                    on_step(f"{done + 1}/{len(names)}")
        self.look([name for name in names if self.made[name].path])

    def one(self, name):
        kept = OBJECTS / f"{key_of(self.submission, name)}.o"
        if kept.exists():
            os.utime(kept)
            return Compiled(kept)
        number = hashlib.sha256(name.encode()).hexdigest()[:16]
        out = self.job / "compiled" / number
        out.mkdir(parents=True, exist_ok=True)
        made = out / "made.o"
        limits = course.rubric()["limits"]
        if self.left <= 0:
            return Compiled(None, ALL_TIME)
        started = time.monotonic()
        script = sandbox.make(self.job / f"compile_{number}.sh", sandbox.limits_of_compilers(),
                              [*read_by_compilers(), self.folder], out)
        status, log = run_limited(
            [script, *command_of(name, self.folder, made)], limits["build_seconds"]
        )
        self.left -= (time.monotonic() - started) / AT_A_TIME
        if status != 0 or not made.is_file() or made.is_symlink():
            return Compiled(
                None, "does not compile:\n" + first_errors(log, [(str(self.folder), "tasks")])
            )
        OBJECTS.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = kept.with_suffix(f".{os.getpid()}.part")
        shutil.copyfile(made, part)
        part.replace(kept)
        return Compiled(kept)

    def look(self, names):
        """Inspects the objects of these files with scripts/look.sh, and stores its findings by kind
        in self.rejected, self.stopped and self.remarks."""
        folder = self.job / "looked_at"
        paths = {}
        for name in names:
            paths[name] = folder / "tasks" / f"{name}.o"
            paths[name].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.made[name].path, paths[name])
        if not paths:
            return
        script = sandbox.make(self.job / "look.sh", sandbox.limits_of_linkers(), [LOOK, folder])
        status, log = run_limited(
            [script, LOOK, *paths.values()], course.rubric()["limits"]["build_seconds"]
        )
        if status != 0:
            log = "".join(
                f"rejected\ttasks/{name}\tcan't be looked at: {log[-300:]}\n" for name in names
            )
        for line in log.splitlines():
            kind, _, rest = line.partition("\t")
            path, _, sentence = rest.partition("\t")
            into = {"rejected": self.rejected, "stopped": self.stopped, "remark": self.remarks}.get(
                kind
            )
            if into is not None:
                into.setdefault(path.removeprefix("tasks/"), []).append(
                    f"{path} {course.one_line(sentence)}"
                )

    def trouble(self, name, looked_at=True):
        """Returns the reason why the file can't be used: it does not compile or look.sh rejects it;
        "" if it is used."""
        if self.made[name].why:
            return self.made[name].why
        if looked_at and name in self.rejected:
            return "is not run: " + "; ".join(self.rejected[name])
        return ""


def require_that_compilers_run():
    """Raises Refused if the compiler does not work in the sandbox."""
    with tempfile.TemporaryDirectory(prefix="fsdp-trial-") as folder:
        os.chmod(folder, 0o755)
        made = pathlib.Path(folder) / "made"
        made.mkdir()
        name = next(iter(course.blank()))
        script = sandbox.make(
            f"{folder}/compile", sandbox.limits_of_compilers(), read_by_compilers(), made
        )
        words = command_of(name, ROOT / "tasks", made / "empty.o")
        words[words.index("-c"):] = ["-x", "c++", "-c", "/dev/null"]
        status, log = run_limited([script, *words], course.rubric()["limits"]["build_seconds"])
        if not (made / "empty.o").exists():
            raise Refused(
                f"the compiler does not work in the sandbox ({sandbox.best_mode()}): {log[-300:]}"
            )
