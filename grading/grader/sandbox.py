"""How graded code is compiled and run here: the best of what the machine allows."""

import functools
import itertools
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tempfile

from grader import memory_group, session
from grader.course import BUILD, ROOT, Refused, rubric

SCRIPT = ROOT / "grading" / "grader" / "sandbox.sh"
COMPILE = ROOT / "grading" / "grader" / "compile.sh"
ASSEMBLER = COMPILE.parent / "assembler"  # what compile.sh makes of the compiler's
CONFINE = BUILD / "bin" / "confine"
FIRST_USER = 61_000  # that graded code runs as
USERS = 50  # of each job: one for each run, in turns
_runs = itertools.count()


def users(job):
    return range(FIRST_USER + job * USERS, FIRST_USER + (job + 1) * USERS)


def filters_calls():
    """Whether system calls can be taken away here. Before the first build there is no program for it."""
    return CONFINE.exists() and subprocess.run([CONFINE, "/bin/true"], capture_output=True).returncode == 0


def environment(job=0, mode=None, seen=()):
    """For sandbox.sh, to run graded code. `seen`: files and folders that it reads, besides its libraries."""
    limits = rubric()["limits"]
    return {
        **with_user(job, mode),
        "FSDP_CONFINE": str(CONFINE) if filters_calls() else "",
        "FSDP_SEEN": "\n".join(map(str, [*libraries(), CONFINE, *seen])),
        "FSDP_GROUP": memory_group.of(job, limits["all_memory_bytes"]),
        "FSDP_LIMITS": f"--nproc={limits['processes']} --fsize={limits['file_bytes']} "
        f"--data={limits['memory_bytes']} --core=0 --nofile=1024",
    }


def compiler_environment(job=0, mode=None):
    """For compile.sh."""
    limits = rubric()["limits"]
    return {
        **with_user(job, mode),
        "FSDP_SEEN": "\n".join(map(str, read_by_compilers())),
        "FSDP_HIDDEN": str(BUILD / "grades"),  # results and programs of other submissions
        "FSDP_LIMITS": f"--nproc={limits['processes']} --fsize={limits['object_bytes']} "
        f"--as={limits['compiler_bytes']} --cpu={limits['compiler_seconds']} --core=0",
    }


def with_user(job, mode):
    values = {**os.environ, "FSDP_SANDBOX": mode or best_mode()}
    if os.geteuid() == 0:
        values["FSDP_SANDBOX_USER"] = str(users(job)[next(_runs) % USERS])
    return values


@functools.cache
def libraries():
    """Folders of the libraries that a test program loads."""
    program = next((BUILD / "bin").glob("mine_task*_tests"), None)
    if not program:
        return []
    printed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return sorted({pathlib.Path(path).parent for path in re.findall(r"=> (/.*?) \(", printed)})


@functools.cache
def compiler():
    return re.search(r"(?m)^CMAKE_CXX_COMPILER:\w+=(.*)", (BUILD / "CMakeCache.txt").read_text())[1]


@functools.cache
def read_by_compilers():
    """What the compilers and linkers of graded code read: the build, the course's own code, of the
    solutions the headers alone, and what build.ninja names elsewhere."""
    own = [BUILD, ASSEMBLER, *(ROOT / name for name in ("common", "programs", "tests", "trainer"))]
    ninja = (BUILD / "build.ninja").read_text()
    named = re.findall(r"(?<=-isystem )/\S+", ninja) + re.findall(r" (/\S+)/[^/\s]+\.(?:so|a)\b", ninja)
    installed = str(pathlib.Path(compiler()).parent.parent)
    outside = {path for path in [*named, installed] if not path.startswith("/usr")}
    return [*own, *sorted((ROOT / "solutions").rglob("*.h")), *sorted(outside)]


# Succeeds if it has no capability and can neither take a mount away nor make it writable again.
TRIES_TO_BREAK_OUT = """
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 1
umount /tmp && exit 2
mount -o remount,bind,rw / && exit 3
exit 0
"""


def works(command, mode, seen=()):
    done = subprocess.run([SCRIPT, *command], env=environment(0, mode, seen), stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60)
    return done.returncode == 0


@functools.cache
def best_mode():
    """namespaces, user or limits: the first that works."""
    possible = ["namespaces"] if shutil.which("unshare") else []
    possible += ["user"] if os.geteuid() == 0 else []
    for mode in possible:
        if works(["/bin/sh", "-c", TRIES_TO_BREAK_OUT], mode):
            return mode
    return "limits"


def require_that_tests_run(program):
    """Throws Refused if the grader's own test program does not start where graded code will: then no
    submission would have a point."""
    if works([program, "--gtest_list_tests"], best_mode(), [program]):
        return
    closed = next((folder for folder in reversed(program.resolve().parents)
                   if not folder.stat().st_mode & stat.S_IXOTH), None)
    why = f"other users may not enter {closed}; grade from another folder" if closed else "see sandbox.sh"
    raise Refused(f"{program.name} does not start in the sandbox ({best_mode()}): {why}")


def require_that_compilers_run():
    """Throws Refused if the compiler of graded code does not work in the sandbox."""
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="trial.") as folder:
        made = pathlib.Path(folder) / "empty.o"
        command = [COMPILE, compiler(), "-x", "c++", "-c", "/dev/null", "-o", made]
        done = subprocess.run(command, cwd=BUILD, env=compiler_environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, errors="replace", timeout=60)
        if not made.exists():
            raise Refused(f"the compiler does not work in the sandbox ({best_mode()}): {done.stderr[-300:]}")


def clean_up(job=0):
    """Ends what the users of the job have left running, and waits until it has ended."""
    if os.geteuid() != 0:
        return  # it is the grader's own user; namespaces end with their first process
    if not session.end_users(users(job)):
        raise Refused(f"processes of user {users(job)[0]}, as which graded code ran, do not end")
