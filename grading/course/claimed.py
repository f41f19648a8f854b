"""What the kinds of claims have in common: the form of their entries, and the handouts that make them."""

from grader import course
from grader.course import ROOT, Refused


def checked(entry, fields, file):
    """The entry of the file, if it has no other fields."""
    if unknown := set(entry) - fields:
        raise Refused(f"{file.name}: unknown {', '.join(unknown)}")
    return entry


def handout_of(task):
    return ROOT / "tasks" / course.tasks()[task - 1].folder / "README.md"


def normal(text):
    """On one line: a handout is wrapped."""
    return " ".join(text.split())
