"""Shows on a terminal how far a grading is."""

import sys
import time

from grader.course import one_line


def show_line(text):
    """Shows the text in place of the line before. Shows nothing without a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Progress:
    """The progress of a class: a line per submission and, on a terminal, a bar below them."""

    def __init__(self, total):
        self.total, self.done, self.started = total, 0, time.monotonic()
        self.draw()

    def draw(self, doing=""):
        left = ""
        if self.done:
            seconds = (time.monotonic() - self.started) / self.done * (self.total - self.done)
            left = f", {seconds / 60:.0f} min left"
        bar = "#" * (30 * self.done // self.total)
        show_line(f"{bar:.<30} {self.done} of {self.total}{left}  {one_line(doing)}"[:99])

    def show(self, name, text):
        self.show_lines([f"{one_line(name):28.28} {one_line(text)}"])

    def show_lines(self, lines):
        """Shows the result of a submission, as printable lines."""
        self.done += 1
        show_line("")
        print(*lines, sep="\n", flush=True)
        if self.done < self.total:
            self.draw()
