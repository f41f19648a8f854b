"""Shows on a terminal how far a grading has come."""

import sys
import time

from grader.course import one_line


def show_line(text):
    """Shows the text on standard error in place of the line that was shown last. Does nothing if
    standard error is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


class Progress:
    """The progress of the grading of a class: prints a line for each graded submission and, on a
    terminal, a bar below these lines."""

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
        """Prints the result of one more submission, given as printable lines, and draws the bar
        again unless this submission was the last one."""
        self.done += 1
        show_line("")
        print(*lines, sep="\n", flush=True)
        if self.done < self.total:
            self.draw()
