"""The programs of a submission: one per task and base, built in one place, moved away to be run."""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import threading

from grader import course, header_text, objects, sandbox, session, source_text
from grader.course import BUILD, ROOT, Refused

GRADED = BUILD / "graded"  # where the files of the submission lie that is being built
KEPT = BUILD / "grades"
COPIES = KEPT / "programs"  # in it a folder of each job
LOCKS = pathlib.Path("/run/fsdp-grader") if os.geteuid() == 0 else COPIES  # root's jobs have users of the machine
BASES = ("own", "reference")
TOO_MUCH, NO_TIME = "\nerror: the compiler prints too much\n", "the time for compiling was over\n"
NO_REASON = "does not build, and the compiler gives no reason"


@dataclasses.dataclass(frozen=True)
class Program:
    """The tests of a task, over the student's own tasks before it or over the reference ones. Of task 1
    there is one: nothing comes before it. Of the last task over the student's own, also `fsdp train`."""

    task: course.Task
    base: str  # own or reference
    trains: bool = False

    @property
    def stack(self):
        below = self.task.number - 1
        return "graded" if self.base == "own" or below == 0 else f"graded_on_{below}"

    @property
    def target(self):
        return f"{self.stack}_train" if self.trains else f"{self.stack}_task{self.task.number}_tests"

    @property
    def tasks(self):
        """Whose files are in it."""
        first = 1 if self.base == "own" else self.task.number
        return [task for task in course.tasks() if first <= task.number <= self.task.number]

    @property
    def over_headers(self):
        """What it is linked from that the course compiles over the student's headers."""
        strategy = ["strategy"] if self.task == course.tasks()[-1] else []
        return [*strategy, "train" if self.trains else f"task{self.task.number}_tests"]

    @property
    def sources(self):
        """Folders and files of the repository that the program or its result depends on, besides the
        build's own, common/ and trainer/."""
        if self.trains:  # its seconds are compared with those of the reference
            return ["grading/grader/throughput.py", "programs", "solutions"]
        tasks = course.tasks()[: self.task.number]
        earlier = tasks[:-1] if self.base == "reference" else []
        tests = [f"tests/{task.folder}" for task in tasks]  # a later task's include an earlier one's
        return ["programs/check", *tests, *(f"solutions/{folder}" for task in earlier for folder in task.folders)]

    def key(self, submission, looked_at=True):
        digest = submission.digest([task.number for task in self.tasks])
        how = "" if looked_at else " not looked at"
        return hashlib.sha256(f"{code(self)} {self.target} {digest}{how}".encode()).hexdigest()[:32]


def all_programs():
    return [
        Program(task, base) for task in course.tasks() for base in BASES
        if base == "own" or task.number > 1
    ]


def training_program():
    return Program(course.tasks()[-1], "own", trains=True)


@functools.cache
def code(program):
    """A hash of everything that a program depends on besides the submission, and whether it is run."""
    own = ["CMakeLists.txt", "cmake", "common", "course.toml", "trainer"]
    looks = ("objects.py", "source_text.py", "header_text.py", "declarations.py", "pieces.py", "compile.sh",
             "assembler/as")
    graders = ["grading/rubric.toml", *(f"grading/grader/{name}" for name in looks)]
    files = []
    for path in (ROOT / name for name in (*own, *graders, *program.sources)):
        found = [path] if path.is_file() else path.rglob("*")  # none if there is no such folder
        files += [p for p in found if p == path or p.suffix in (".cpp", ".h", ".cmake")]
    return course.digest(files)


def build(*targets):
    """What is the grader's own, with the build's progress and errors on standard error."""
    if subprocess.run([ROOT / "fsdp", "build", *targets], stdout=subprocess.DEVNULL).returncode != 0:
        raise Refused("the grader's own programs do not build; grade from a clean copy")


_building = threading.Lock()


@contextlib.contextmanager
def place_to_build():
    """One submission at a time, of all graders that share the folder. What it yields is held by a
    compiler that outlives its grader, too."""
    with _building, open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def put_in(files):
    """Path in tasks/ -> content. Touches only what is different: ninja goes by the time of a file. What is
    no file of the course, as after a change of it, would be compiled too."""
    for path in GRADED.rglob("*.*"):
        if path.is_file() and path.relative_to(GRADED).as_posix() not in course.blank():
            path.unlink()
    for name, content in files.items():
        path = GRADED / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def ninja(targets, place, on_step=None, job=0):
    """Builds what can be built, with compilers in the sandbox (compile.sh); the log. Calls
    on_step("3/70") as it goes on."""
    process = subprocess.Popen(
        session.bound(["ninja", "-C", BUILD, "-k", "0", *targets]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=sandbox.compiler_environment(job),
        pass_fds=(place.fileno(),),
    )
    end = threading.Timer(course.rubric()["limits"]["build_seconds"], session.end, [process])
    end.start()
    lines, left = [], course.rubric()["limits"]["log_characters"]
    with process:
        try:
            while line := process.stdout.readline(left):
                lines.append(line)
                left -= len(line)
                step = re.match(r"\[(\d+/\d+)\]", line)
                if step and on_step:
                    on_step(step[1])
            if left <= 0:
                lines.append(TOO_MUCH)
            elif process.wait() < 0:
                lines.append(NO_TIME)
        finally:
            end.cancel()
            session.end(process)  # after an interrupt, or compilers that outlive ninja
            for left in pathlib.Path(BUILD).glob("graded_output.*"):  # by a compile.sh that was killed
                shutil.rmtree(left, ignore_errors=True)
    return "".join(lines)


# What a machine does that is full or busy, whoever filled it.
MACHINE = re.compile(r"No space left on device|[Ss]ignal 9\b|was killed: Killed|Killed signal terminated program|"
                     r"exit\(137\)|Resource temporarily unavailable|out of memory|[Cc]annot allocate memory")


def first_errors(log, stack):
    """Of a compiler's or linker's output, what a student can do something about."""
    shown = {}  # as a set that keeps their order
    for line in log.splitlines():
        if re.match(r" *\d* *\|", line):  # a line of the source, as compilers show it
            continue
        if re.search(r"error:|undefined reference|multiple definition|time for compiling", line) or MACHINE.search(line):
            line = line.replace(f"{GRADED}/", "tasks/").replace(f"{ROOT}/", "")
            line = line.replace(f"{BUILD.relative_to(ROOT)}/", "")
            shown[line[:300]] = True
    own = [line for line in shown if line.startswith("tasks/")]
    machine = [line for line in shown if MACHINE.search(line) and line not in own]
    return "\n".join([*(own or shown), *machine][:5]) or NO_REASON


def require_that_ninja_works(log):
    """A compiler that fails is the submission's affair; an error of ninja's own, as in a folder that was
    configured under another path, is not. Of a log that was cut, the last line may be anybody's."""
    if log.endswith((TOO_MUCH, NO_TIME)):
        return
    words = re.findall(r"(?m)^ninja: .*", log)  # its last are about the whole build, whatever compilers print
    if words and words[-1].startswith("ninja: error: "):
        raise Refused(f"the grader's build does not work ({words[-1][:200]}): delete {BUILD} and grade again")


def errors_of(program, log):
    """The parts of ninja's log in which the program failed, or the library of a task that is in it."""
    numbers = "".join(str(task.number) for task in program.tasks)
    own = re.compile(rf"[/ ]({program.target}|{program.stack}_task[{numbers}])\b")
    parts = re.split(r"(?m)^(?=FAILED: |\[\d+/\d+\] )", log)
    return "".join(p for p in parts if p.startswith("FAILED: ") and own.search(p.splitlines()[0]))


@dataclasses.dataclass
class Built:
    path: object = None  # of the program, None if there is none
    why: str = ""  # there is none
    left_out: str = ""  # why extensions are in it as if they were not handed in


@contextlib.contextmanager
def new_job():
    """A number that no other submission has while it is graded, by whatever grader of root on this machine, or
    of an ordinary user in this folder: its programs and the user who runs them (sandbox.py) are its own."""
    COPIES.mkdir(parents=True, exist_ok=True)
    LOCKS.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in itertools.count():
        with open(LOCKS / f"{number}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            folder = COPIES / str(number)
            shutil.rmtree(folder, ignore_errors=True)  # of a grader that was killed
            try:
                yield number
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return


def keep_program(binary, job):
    """Moves it to where it stays until the job ends: the place to build is the next submission's. It is
    not copied: a program that another thread forks meanwhile would hold the copy open for writing, and
    the kernel starts no such file ("Text file busy")."""
    path = COPIES / str(job) / binary.name
    path.parent.mkdir(exist_ok=True)
    binary.rename(path)
    path.chmod(0o755)
    return path


def refused_unseen(submission, wanted):
    """Program -> Built, of those that are not even compiled."""
    @functools.cache  # most files are in several programs
    def why_not(name):
        looks = (look.wrong_in(submission.files, [name]) for look in (source_text, header_text))
        return next(filter(None, looks), "")

    built = {}
    for program in wanted:
        names = (name for task in program.tasks for name in task.files)
        if why := next(filter(None, map(why_not, names)), ""):
            built[program] = Built(None, "is not run: " + why)
    return built


def refused_object(program, refused):
    """Why the compiled program is not run. Looks at what it is linked from, and at nothing else: in the place
    where it was built are objects of other submissions, too. `refused`: (stack, task or what) -> why, of those
    that are known."""
    looks = [(objects.wrong, task) for task in program.tasks]
    looks += [(objects.wrong_over_headers, what) for what in program.over_headers]
    for look, at in looks:
        if (program.stack, at) not in refused:
            refused[program.stack, at] = look(program.stack, at, GRADED)
        if why := refused[program.stack, at]:
            return why
    return ""


def build_programs(submission, wanted, job, looked_at=True, on_step=None):
    """Program -> Built. No task depends on extensions: a program that can't be had with them is built without."""
    built = build_as_it_is(submission, wanted, job, looked_at, on_step)
    again = [program for program, made in built.items() if made.why and not MACHINE.search(made.why)
             and submission.has_extensions(program.tasks)]
    if again:
        for program, made in build_as_it_is(submission.without_extensions(), again, job, looked_at, on_step).items():
            if not made.why:
                built[program] = dataclasses.replace(made, left_out=built[program].why)
    return built


def build_as_it_is(submission, wanted, job, looked_at, on_step):
    """Program -> Built. Each is refused or moved away before the next submission takes the place."""
    built = refused_unseen(submission, wanted) if looked_at else {}
    wanted = [program for program in wanted if program not in built]
    if not wanted:
        return built
    with place_to_build() as place:
        put_in(submission.files)
        targets = sorted({program.target for program in wanted})
        for target in targets:
            (BUILD / "bin" / target).unlink(missing_ok=True)
        log = ninja(targets, place, on_step, job)
        require_that_ninja_works(log)
        refused = {}
        for program in wanted:
            binary = BUILD / "bin" / program.target
            if not binary.exists():
                part = errors_of(program, log) or log[-3000:]
                built[program] = Built(None, "does not compile:\n" + first_errors(part, program.stack))
            elif why := refused_object(program, refused) if looked_at else "":
                built[program] = Built(None, "is not run: " + why)
            else:
                built[program] = Built(keep_program(binary, job))
    return built
