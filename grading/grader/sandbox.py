"""Sandboxes in which graded code is compiled, linked and run. A sandbox is a script that runs a
program with as few rights as possible, in the first of three modes that works: `namespaces`
(bubblewrap), `user` (for root without namespaces: another user with limits) or `limits` (only
limits)."""

import dataclasses
import functools
import os
import pathlib
import pwd
import random
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile

from grader import call_filter
from grader.course import BUILD, ROOT, Refused, rubric

# The folder of results, objects and running jobs. It is not in build/, because build/ is deleted if
# the repository's folder was moved.
KEPT = ROOT / ".grades"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
OF_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "hosts", "nsswitch.conf")
# User ids above those that systemd, containers and directory services give to users.
USERS = range(1_900_000_000, 2_100_000_000)
given = set()  # user ids that this grader has given to sandboxes


def has_processes(user):
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and re.search(
                rf"(?m)^Uid:.*\t{user}\b", (entry / "status").read_text()
            ):
                return True
        except OSError:  # the process has ended
            continue
    return False


def is_free(user):
    """Returns whether this user id is unused: no account has it, and no process runs under it."""
    try:
        pwd.getpwuid(user)
        return False
    except KeyError:
        return not has_processes(user)


def free_user():
    """Returns an unused user id, under which the programs of one sandbox run."""
    user = next(user for user in iter(lambda: random.choice(USERS), None) if is_free(user))
    given.add(user)
    return user


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a sandbox: the options of prlimit, and the size of the scratch folders."""

    options: tuple
    scratch: int  # [bytes]
    # Whether /dev and /proc are visible in the sandbox. Compilers get False, because a compiler
    # that reads a file of /dev could wait forever.
    devices: bool = True


def limits_of(file_bytes, memory_bytes):
    """Returns limits for a sandbox. `file_bytes`: the most bytes of one file and of each scratch
    folder. `memory_bytes`: the most bytes of a process."""
    return Limits(
        (
            f"--nproc={rubric()['limits']['processes']}",
            f"--fsize={file_bytes}",
            f"--data={memory_bytes}",
            "--core=0",
            "--nofile=1024",
        ),
        file_bytes,
    )


def limits_of_runs():
    limits = rubric()["limits"]
    return limits_of(limits["file_bytes"], limits["memory_bytes"])


def limits_of_audits():
    """Returns limits for the programs of the course that read a student's receipt."""
    limits = rubric()["receipts"]
    return limits_of(limits["scratch_bytes"], limits["memory_bytes"])


def limits_of_linkers():
    return dataclasses.replace(limits_of_compilers(), devices=True)


def limits_of_compilers():
    limits = rubric()["limits"]
    return Limits(
        (
            f"--nproc={limits['processes']}",
            f"--fsize={limits['object_bytes']}",
            f"--as={limits['compiler_bytes']}",
            f"--cpu={limits['compiler_seconds']}",
            "--core=0",
        ),
        limits["object_bytes"],
        devices=False,
    )


def make(script, limits, seen=(), writes=None, folder=None, mode=None, program=(), as_grader=False):
    """Writes `script`, which runs the words `program` and then its own arguments under these
    limits. Returns the script's path.

    In mode `namespaces` the program can read the system's folders and `seen` (files and folders),
    and can write only to `writes` (a folder) and to scratch folders. It starts in `folder`, or in
    /tmp if that is None. `as_grader`: the program runs as the grader's user, because only this user
    may read the files that are linked; without namespaces, the sandbox of such a program only has
    limits."""
    mode = mode or best_mode()
    if as_grader and mode == "user":
        mode = "limits"
    user = free_user() if os.geteuid() == 0 and mode != "limits" and not as_grader else None
    script = pathlib.Path(script)
    script.parent.mkdir(parents=True, exist_ok=True)
    redirection, words = "", []
    if writes and user:
        os.chown(writes, user, user)
    if mode == "namespaces":
        if filters_calls():
            rules = script.with_suffix(".calls")
            call_filter.write(rules)
            redirection = f" 9< {shlex.quote(str(rules))}"
            words += ["bwrap", "--seccomp", "9"]
        else:
            words += ["bwrap"]
        words += bubblewrap(limits, seen, writes, folder, user)
    elif filters_calls():
        words += [os.path.realpath(sys.executable), "-I", call_filter.__file__]
    words += ["prlimit", *limits.options, "setpriv", "--no-new-privs", "--pdeathsig", "KILL"]
    if user:
        words += ["--reuid", str(user), "--regid", str(user), "--clear-groups", "--inh-caps=-all"]
    words += ["env", "-i", "PATH=/usr/bin:/bin", "HOME=/", "LC_ALL=C.UTF-8",
              f"TMPDIR={writes if writes and mode != 'namespaces' else '/tmp'}"]
    text = [
        "#!/bin/sh",
        "# If the machine has no memory left, the kernel ends this first, and not the grader.",
        "{ echo 1000 > /proc/self/oom_score_adj; } 2> /dev/null",
        f"cd {shlex.quote(str(folder or '/tmp'))} || exit",
        f'exec {shlex.join(map(str, words))} ${{FSDP_SEED_FROM+FSDP_SEED_FROM="$FSDP_SEED_FROM"}} '
        f'${{OMP_NUM_THREADS+OMP_NUM_THREADS="$OMP_NUM_THREADS"}} {shlex.join(map(str, program))} '
        f'"$@"{redirection}',
    ]
    script.write_text("\n".join(text) + "\n")
    script.chmod(0o755)
    return script


def bubblewrap(limits, seen, writes, folder, user):
    """Returns bubblewrap's options that unshare the namespaces and choose the visible files."""
    words = [
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--die-with-parent",
    ]
    # If root runs the grader, setpriv in the sandbox needs these two capabilities to change to the
    # sandbox's user, and drops them then. If another user runs it, there are no capabilities to
    # drop.
    words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if user else []
    words += ["--unshare-user"] if os.geteuid() != 0 else []
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    if limits.devices:
        words += ["--proc", "/proc", "--dev", "/dev"]
    else:
        words += ["--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"]
    for path in ("/dev/shm", "/tmp") if limits.devices else ("/tmp",):
        words += ["--perms", "1777", "--size", str(limits.scratch), "--tmpfs", path]
    # bubblewrap would create missing parent folders so that only their owner can enter them. So
    # they are created here, with mode 0755.
    parents = {
        parent
        for path in ("/etc/x", *map(str, seen), str(writes or "/tmp/x"), f"{folder or '/tmp'}/x")
        for parent in pathlib.Path(path).parents
    }
    for path in sorted(parents - {pathlib.Path(path) for path in ("/", "/tmp", *SYSTEM)}):
        if not str(path).startswith(tuple(f"{path}/" for path in SYSTEM)):
            words += ["--perms", "0755", "--dir", str(path)]
    for name in OF_ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in map(str, seen):
        words += ["--ro-bind", path, path]
    if writes:
        words += ["--bind", str(writes), str(writes)]
    words += ["--remount-ro", "/dev"] if limits.devices else []
    return [*words, "--remount-ro", "/", "--chdir", str(folder or "/tmp"), "--"]


@functools.cache
def filters_calls():
    """Returns whether call_filter.py works on this machine."""
    program = [os.path.realpath(sys.executable), "-I", call_filter.__file__, "/bin/true"]
    return subprocess.run(program, capture_output=True).returncode == 0


# A shell script that best_mode() runs in a sandbox, to try whether the sandbox's mode works. The
# script succeeds if it has no capability and can neither unmount a file system nor make it writable
# again.
TRIES_TO_BREAK_OUT = """
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 1
umount /tmp && exit 2
mount -o remount,bind,rw / && exit 3
exit 0
"""


def works(command, mode, seen=()):
    with tempfile.TemporaryDirectory(prefix="fsdp-trial-") as folder:
        os.chmod(folder, 0o755)
        script = make(f"{folder}/run", limits_of_runs(), seen, mode=mode)
        try:
            done = subprocess.run(
                [script, *command], stdin=subprocess.DEVNULL, capture_output=True, timeout=60
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


@functools.cache
def best_mode():
    """Returns the value of FSDP_SANDBOX or, if that is not set, the first mode that works:
    namespaces, user or limits."""
    if os.environ.get("FSDP_SANDBOX") in ("namespaces", "user", "limits"):
        return os.environ["FSDP_SANDBOX"]
    possible = ["namespaces"] if shutil.which("bwrap") else []
    possible += ["user"] if os.geteuid() == 0 else []
    for mode in possible:
        if works(["/bin/sh", "-c", TRIES_TO_BREAK_OUT], mode):
            return mode
    return "limits"


@functools.cache
def libraries(names="mine_task*_tests"):
    """Returns the folders of the libraries that programs of the build load, except the system's
    folders. `names`: the programs, by default the test programs; another value is, for example,
    "audit". There may be several folders, because the programs may have been linked with LibTorch
    in different places."""
    programs = list((BUILD / "bin").glob(names))
    if not programs:
        return ()
    printed = subprocess.run(["ldd", *programs], capture_output=True, text=True).stdout
    found = {pathlib.Path(path).parent for path in re.findall(r"=> (/.*?) \(", printed)}
    return tuple(sorted(path for path in found if not str(path.resolve()).startswith(SYSTEM)))


def require_that_tests_run(program):
    """Raises Refused if the grader's own test program does not start in the sandbox, because then
    the program of no submission would start and none would get a point."""
    with tempfile.TemporaryDirectory(dir=KEPT, prefix="trial-") as folder:
        os.chmod(folder, 0o755)
        # The program is copied to where graded programs are, because the sandbox's user may be
        # unable to read build/.
        copy = pathlib.Path(shutil.copy(program, folder))
        if works([copy, "--gtest_list_tests"], best_mode(), [copy, *libraries()]):
            return
    closed = next(
        (
            folder
            for path in (KEPT, *libraries())
            for folder in reversed(path.resolve().parents)
            if not folder.stat().st_mode & stat.S_IXOTH
        ),
        None,
    )
    why = (
        f"other users may not enter {closed}; grade from another folder"
        if closed
        else "see grader/sandbox.py"
    )
    raise Refused(f"{program.name} does not start in the sandbox ({best_mode()}): {why}")
