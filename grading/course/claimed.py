"""What the kinds of claims have in common: the handouts that make them, and the programs that they run."""

import os
import subprocess

from grader import course
from grader.course import ROOT

SECONDS = 240  # that a program may take


def handout_of(task):
    return ROOT / "tasks" / course.tasks()[task - 1].folder / "README.md"


def normal(text):
    """On one line: a handout is wrapped."""
    return " ".join(text.split())


def run(words, folder=None):
    """A program of the build, as ./fsdp runs it."""
    return subprocess.run(words, cwd=folder, env={**os.environ, "FSDP_ROOT": str(ROOT)}, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=SECONDS)
