"""How graded code is run here: the best of what the machine allows."""

import functools
import os
import shutil
import stat
import subprocess

from grader import session
from grader.course import ROOT, Refused, rubric

SCRIPT = ROOT / "grading" / "grader" / "sandbox.sh"
FIRST_USER = 61_000  # that graded code runs as; one for each job
SECRETS = ("solutions", "grading", "tests", "tasks", ".git", ".pristine", "build", ".cache")


def environment(job=0, mode=None):
    limits = rubric()["limits"]
    hidden = [str(ROOT / name) for name in SECRETS if (ROOT / name).is_dir()]
    values = {
        **os.environ,
        "FSDP_SANDBOX": mode or best_mode(),
        "FSDP_HIDDEN": " ".join(hidden),
        "FSDP_LIMITS": f"--nproc={limits['processes']} --fsize={limits['file_bytes']} "
        f"--data={limits['memory_bytes']} --core=0 --nofile=1024",
    }
    if os.geteuid() == 0:
        values["FSDP_SANDBOX_USER"] = str(FIRST_USER + job)
    return values


# Succeeds if it has no capability and can neither take a mount away nor make it writable again.
TRIES_TO_BREAK_OUT = """
grep -q '^CapEff:[[:space:]]*0*$' /proc/self/status || exit 1
umount /tmp && exit 2
mount -o remount,bind,rw / && exit 3
exit 0
"""


def works(command, mode):
    done = subprocess.run([SCRIPT, *command], env=environment(0, mode), stdin=subprocess.DEVNULL,
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
    if works([program, "--gtest_list_tests"], best_mode()):
        return
    closed = next((folder for folder in reversed(program.resolve().parents)
                   if not folder.stat().st_mode & stat.S_IXOTH), None)
    why = f"other users may not enter {closed}; grade from another folder" if closed else "see sandbox.sh"
    raise Refused(f"{program.name} does not start in the sandbox ({best_mode()}): {why}")


def clean_up(job=0):
    """Ends what the user of the job has left running, and waits until it has ended."""
    if os.geteuid() != 0:
        return  # it is the grader's own user; namespaces end with their first process
    if not session.end_user(FIRST_USER + job):
        raise Refused(f"processes of user {FIRST_USER + job}, as which graded code ran, do not end")
