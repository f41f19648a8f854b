"""Ends programs with all that they have started."""

import os
import pathlib
import signal
import time

PATIENCE = 20  # [s] until the killed have ended


def bound(command):
    """The command, which the kernel kills when the grader ends, also if that is killed itself."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def members(session):
    """The numbers of the processes of a session that still run."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, its = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if state != "Z" and int(its) == session:
            found.append(int(entry.name))
    return found


def end(process):
    """`process` was started with start_new_session. What it has started may leave its group (ninja
    gives each compiler one of its own), but not its session: a filter of system calls, or a
    namespace of processes that ends with its first one, keeps it there. So no process that somebody
    else has started is ended, whatever user it runs as. Whether all have ended."""
    deadline = time.monotonic() + PATIENCE
    while (numbers := members(process.pid)) and time.monotonic() < deadline:
        for number in numbers:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    return not numbers
