"""Ends programs with all that they have started."""

import os
import pathlib
import re
import signal
import time

PATIENCE = 20  # [s] until the killed have ended


def bound(command):
    """The command, which the kernel kills when the grader ends, also if that is killed itself."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


def processes():
    """(number, session, user) of those that run."""
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, session = (entry / "stat").read_text().rpartition(") ")[2].split()[:4]
            # Not the owner of the folder: it is root for a process that lets nobody trace it.
            user = re.search(r"(?m)^Uid:\t(\d+)", (entry / "status").read_text())[1]
        except OSError:  # it has ended
            continue
        if state != "Z":
            yield int(entry.name), int(session), int(user)


def kill_all(found):
    """Kills those that `found` returns until there are none, which it returns, or patience is over."""
    deadline = time.monotonic() + PATIENCE
    while (numbers := found()) and time.monotonic() < deadline:
        for number in numbers:
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    return not numbers


def members(session):
    return [number for number, its, _ in processes() if its == session]


def end(process):
    """`process` was started with start_new_session. What it has started may leave its group (ninja gives each
    compiler one of its own), but not its session."""
    kill_all(lambda: members(process.pid))


def end_users(users):
    """Whether nothing of the users runs now."""
    return kill_all(lambda: [number for number, _, its in processes() if its in users])
