"""The memory of all ranks of a graded program together. Each of its processes has a limit of its own, but
what they share is in none of these, and eight ranks are eight processes: a control group counts all."""

import atexit
import functools
import os
import pathlib

from grader.course import BUILD

CONTROL = pathlib.Path("/sys/fs/cgroup")
# Where groups are made, and the file of the limit, in the second and the first version of the kernel's
# control groups.
PLACES = ((CONTROL, "memory.max"), (CONTROL / "memory", "memory.limit_in_bytes"))


def make(path, limit_file, limit):
    """Whether there is now a group at `path` with this limit."""
    if not (path.parent / "cgroup.procs").exists():
        return False  # a folder of another kind
    try:
        path.mkdir(exist_ok=True)
        if not (path / limit_file).exists():
            put(path.parent / "cgroup.subtree_control", "+memory")
        put(path / limit_file, str(limit))
        return True
    except OSError:
        remove(path)
        return False


def put(path, text):
    with open(path, "r+") as file:  # makes no file
        file.write(text)


def remove(path):
    try:
        path.rmdir()
    except OSError:
        pass  # there is none, or a process in it has not ended


def prefix():
    """Of the names of all groups whose graders build here."""
    return f"fsdp_graded_{BUILD.stat().st_ino}_"


def remove_left(folder):
    """The groups of graders that were killed."""
    for path in folder.glob(f"{prefix()}*"):
        grader = path.name.removeprefix(prefix()).partition("_")[0]
        if not pathlib.Path(f"/proc/{grader}").exists():
            remove(path)


@functools.cache
def place():
    """Of PLACES the one that works here, None if there is none: only root makes groups, and not in every
    container."""
    for folder, limit_file in PLACES:
        path = folder / f"fsdp_graded_try_{os.getpid()}"
        if make(path, limit_file, 1 << 30):
            remove(path)
            remove_left(folder)
            return folder, limit_file
    return None


def of(job, limit):
    """The folder of the job's group, whose processes together have `limit` bytes; empty if none can be made.
    It is there until the grader ends."""
    if not place():
        return ""
    folder, limit_file = place()
    path = folder / f"{prefix()}{os.getpid()}_{job}"
    atexit.register(remove, path)
    return str(path) if make(path, limit_file, limit) else ""
