"""Ends programs together with all processes that they have started."""

import os
import pathlib
import signal
import time

PATIENCE = 20  # [s] to wait until killed processes have ended


def bound(command):
    """Returns the command with a prefix that makes the kernel kill the command's process when the
    grader ends, even if the grader is killed."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def members(session):
    """Returns the ids of the processes of a session that are still running."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, its = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
        except OSError:  # the process has ended
            continue
        if state != "Z" and int(its) == session:
            found.append(int(entry.name))
    return found


def end(process):
    """Kills `process`, which was started with start_new_session, and all processes of its session.
    Returns whether all have ended.

    A process that `process` has started may leave its process group (ninja gives each compiler a
    group of its own), but can't leave the session: the filter of system calls prevents this, or the
    process is in a PID namespace that ends with its first process. So the session contains all
    these processes and no other process of the machine, whatever user they run as."""
    deadline = time.monotonic() + PATIENCE
    while (numbers := members(process.pid)) and time.monotonic() < deadline:
        for number in numbers:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    return not numbers
