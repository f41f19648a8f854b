"""The programs that are linked from a submission's objects and the course's. Each task has two test
programs: one with the student's own earlier tasks, and one with the reference solutions of the
earlier tasks. Task 0 and task 1 have only one test program, because they use no earlier task. One
more program trains with all tasks of the student."""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile

from grader import course, sandbox
from grader.compiling import KEPT, LOOK, MACHINE, Compiler, first_errors, run_limited
from grader.course import BUILD, ROOT, Refused
from grader.submission import completed, is_extension

JOBS = KEPT / "jobs"
BASES = ("own", "reference")
EARLIER = "because an earlier task is not"
ISOLATE = ROOT / "cmake" / "isolate.sh"


@dataclasses.dataclass(frozen=True)
class Program:
    """A test program of a task. `base`: "own" if the task is linked with the student's own earlier
    tasks, "reference" if it is linked with the reference solutions of the earlier tasks. Task 0 and
    task 1 have only the program of base "own", because they use no earlier task. If `trains`, this
    is instead `fsdp train` with all tasks of the student."""

    task: course.Task
    base: str  # own or reference
    trains: bool = False

    @property
    def stack(self):
        below = self.task.number - 1
        return "mine" if self.base == "own" or below < 1 else f"mine_on_{below}"

    @property
    def target(self):
        """The name of the build's target for this program. The build makes it from the blank tasks
        in place of a submission."""
        return (
            f"{self.stack}_train" if self.trains else f"{self.stack}_task{self.task.number}_tests"
        )

    @property
    def own_object(self):
        """The path, relative to the build folder, of the object file that contains all of the
        student's code in this program."""
        return f"own/{self.target}.o"

    @property
    def tasks(self):
        """The tasks whose files from the submission are in the program."""
        if self.trains:
            return list(course.tasks())
        first = min(1, self.task.number) if self.base == "own" else self.task.number
        return [task for task in course.tasks() if first <= task.number <= self.task.number]

    def key(self, handed_in, looked_at=True):
        how = "" if looked_at else " not looked at"
        text = f"{code(self)} {self.target} {handed_in.digest(self.tasks)}{how}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def all_programs():
    return [
        Program(task, base)
        for task in course.tasks()
        for base in BASES
        if base == "own" or task.number > 1
    ]


def training_program():
    return Program(course.tasks()[-1], "own", trains=True)


@functools.cache
def code(program):
    """Returns a hash of everything besides the submission that the program and its result depend
    on: the course's files and the grader's."""
    tasks = [task for task in course.tasks() if task.number <= program.task.number]
    given = course.tasks() if program.trains else tasks[:-1] if program.base == "reference" else []
    names = [
        "CMakeLists.txt",
        "cmake",
        "common",
        "trainer",
        "course.toml",
        "programs",
        "tasks",
        "scripts/look.sh",
        "grading/rubric.toml",
        *(f"tests/{task.folder}" for task in tasks),  # later tests include headers of earlier ones
        *(f"solutions/{folder}" for task in given for folder in task.folders),
        *(
            f"grading/grader/{name}.py"
            for name in ("compiling", "leaderboard", "leaderboard_entry", "programs", "run",
                         "sandbox", "throughput")
        ),
    ]
    files = []
    for path in (ROOT / name for name in names):
        found = [path] if path.is_file() else path.rglob("*")  # empty if the folder does not exist
        files += [p for p in found if p == path or p.suffix in (".cpp", ".h", ".cmake", ".sh")]
    return course.digest(files)


def build(*targets):
    """Builds these targets of the course in build/default. The build's progress and errors appear
    on standard error. Raises Refused if a target does not build."""
    if (
        subprocess.run([ROOT / "fsdp", "build", *targets], stdout=subprocess.DEVNULL).returncode
        != 0
    ):
        raise Refused("the grader's own programs do not build; grade from a clean copy")


@contextlib.contextmanager
def new_job():
    """Yields a new folder for the files that are made while one submission is graded, and removes
    it at the end. Also removes the folders that killed graders have left."""
    for folder in (KEPT, JOBS):
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    for left in JOBS.iterdir():
        with (
            contextlib.suppress(OSError),
            open(left / "lock") as lock,
        ):  # its grader holds the lock while it runs
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    folder = pathlib.Path(tempfile.mkdtemp(dir=JOBS))
    folder.chmod(0o711)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def command_for(target):
    """Returns the shell command with which the build makes the file `target`: the last command that
    ninja lists for it."""
    listed = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "commands", "-s", target], capture_output=True, text=True
    )
    lines = [line for line in listed.stdout.splitlines() if line]
    if listed.returncode != 0 or not lines:
        raise Refused(
            f"the grader's build does not work ({listed.stderr.strip()[:200]}): delete {BUILD} "
            f"and grade again"
        )
    return lines[-1]


def link_command(program, objects, folder, guarded=True):
    """Returns the command that links the objects into `folder`/program, as the build links the
    program's target. `guarded`: if true, each function for which scripts/look.sh prints a line of
    the kind `stopped` is replaced by a function that ends the rank."""
    own = f"{folder}/own.o"
    isolate = shlex.split(command_for(program.own_object))
    if isolate.count("--") != 2 or str(ISOLATE) not in isolate:
        raise Refused(
            f"{program.own_object} is not made by {ISOLATE.name}: {shlex.join(isolate)[:200]}"
        )
    first, end = isolate.index(str(ISOLATE)) + 2, isolate.index("--")
    callers, libraries = isolate[first:end], isolate[isolate.index("--", end + 1):]
    words = [
        str(ISOLATE),
        *([] if guarded else ["--unguarded"]),
        own,
        *callers,
        "--",
        *map(str, objects),
        *libraries,
    ]
    link = command_for(f"bin/{program.target}")
    link = re.sub(rf"\S*{re.escape(program.own_object)}(?=\s)", lambda _: shlex.quote(own), link)
    link = link.replace(f"-o bin/{program.target}", f"-o {shlex.quote(f'{folder}/program')}")
    if "-fuse-ld=lld" in link:  # else a section of an object could name a library to link
        link = link.replace("-fuse-ld=lld", "-fuse-ld=lld -Wl,--no-dependent-libraries")
    return f"{shlex.join(words)} && {link}"


@dataclasses.dataclass
class Built:
    path: object = None  # path of the linked program; None: it was not made
    why: str = ""  # why the program was not made
    left_out: str = ""  # why the blank extensions replace the submitted ones


class Builder:
    """Builds the programs of one submission."""

    def __init__(self, handed_in, job, looked_at=True):
        self.submission, self.job, self.looked_at = handed_in, pathlib.Path(job), looked_at
        self.compiler = Compiler(handed_in, self.job)
        self.count = 0

    def compile(self, wanted, on_step=None):
        """Compiles all files of the submission that the programs `wanted` contain. on_step: see
        Compiler.compile()."""
        tasks = {task.number: task for program in wanted for task in program.tasks}
        self.compiler.compile(
            [name for number in sorted(tasks) for name in self.submission.sources(tasks[number])],
            on_step,
        )

    @functools.cached_property
    def without_extensions(self):
        kept = {
            name: content
            for name, content in self.submission.files.items()
            if not is_extension(name)
        }
        return Compiler(completed(kept), self.job / "without_extensions")

    def notes(self, tasks):
        """Returns findings of scripts/look.sh in the code of these tasks that cost no points, for
        the instructor."""
        found = self.compiler
        return [sentence for task in tasks for name in self.submission.sources(task)
                for sentence in (*found.stopped.get(name, ()), *found.remarks.get(name, ()))]

    def stopped(self, task):
        """Returns the sentences of scripts/look.sh about calls in the task's code that end a rank
        if they run. A student sees them if a test fails."""
        return [
            sentence
            for name in self.submission.sources(task)
            for sentence in self.compiler.stopped.get(name, ())
        ]

    def trouble(self, names):
        """Returns the reasons why some of these files can't be used, each reason once; "" if all
        can."""
        found = (self.compiler.trouble(name, self.looked_at) for name in names)
        return "\n".join(dict.fromkeys(filter(None, found)))

    def build(self, program):
        """Links the program and returns a Built. Its file stays until the job ends. Requires that
        compile() has compiled its files. If the program can't be built with the student's
        extensions, it is built with the blank ones, because no task needs extensions."""
        names = [name for task in program.tasks for name in self.submission.sources(task)]
        own = [name for name in names if not is_extension(name)]
        for task in reversed(program.tasks):
            why = self.trouble([name for name in own if name in self.submission.sources(task)])
            if why and task != program.task:
                why = f"is not run, {EARLIER}: {why.removeprefix('is not run: ')}"
            if why:
                return Built(None, why)
        left_out = self.trouble(filter(is_extension, names))
        built = (
            Built()
            if left_out
            else self.link(program, {name: self.compiler.made[name].path for name in names})
        )
        has_any = any(is_extension(name) and name not in self.submission.missing for name in names)
        if built.path or MACHINE.search(built.why) or not has_any:
            return built
        blank = [
            name
            for name in course.blank()
            if is_extension(name)
            and name.rpartition("/")[0]
            in {folder for task in program.tasks for folder in task.folders}
        ]
        self.without_extensions.compile(blank)
        objects = {name: self.compiler.made[name].path for name in own}
        objects |= {name: self.without_extensions.made[name].path for name in blank}
        again = self.link(program, objects)
        return dataclasses.replace(again, left_out=left_out or built.why) if again.path else (
            built if built.why else again)

    def link(self, program, objects):
        """Links the program in a sandbox that runs as the grader's user, because no other user may
        read the objects of the tests and the course's libraries."""
        self.count += 1
        folder = self.job / f"program{self.count}"
        folder.mkdir()
        folder.chmod(0o755)
        headers = [
            ROOT / "tasks" / name
            for task in program.tasks
            for name in task.folders
            if (ROOT / "tasks" / name).is_dir()
        ]
        seen = [BUILD, ISOLATE, LOOK, *headers, *objects.values(), *sandbox.libraries()]
        script = sandbox.make(
            self.job / f"link{self.count}.sh",
            sandbox.limits_of_linkers(),
            seen,
            folder,
            BUILD,
            as_grader=True,
        )
        links = []  # isolate.sh reads the name of the task from these paths
        for name, path in objects.items():
            links.append(folder / "tasks" / f"{name}.o")
            links[-1].parent.mkdir(parents=True, exist_ok=True)
            links[-1].symlink_to(path)
        command = [script, "/bin/sh", "-c", link_command(program, links, folder, self.looked_at)]
        status, log = run_limited(command, course.rubric()["limits"]["build_seconds"])
        made = folder / "program"
        if status != 0 or not made.is_file() or made.is_symlink():
            return Built(None, "does not link:\n" + first_errors(log))
        if os.geteuid() == 0:
            os.chown(made, 0, 0)
        made.chmod(0o755)
        return Built(made)
