"""Draws the figures of the handouts, which are text, as SVG with the page's colours.

A figure is a block of code with the language `figure`. Lines, arrows, cells and bars get shapes;
all other characters stay text at their place. The text itself stays on the page, hidden, for
readers who cannot see the drawing.
"""

import html
import re

WIDE, HIGH = 8, 19  # [px] of a character
FIGURE = re.compile(r"^```figure\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BARS = re.compile(  # a row of a schedule: ..0====|..1====|
    r"^( *\w+ +)(?=.*[=-]\|)([.\dRr|=-]{20,})$"
)
VALUES = re.compile(r"(?<!\S)(?=\S*(\d)\1{4})[\d.]{20,}(?!\S)")  # elements' ranks: 000..11
VALUE_COLORS = ("all-gather", "reduce-scatter", "state")
LINE = re.compile(  # a line with its arrows, but no hyphen inside of a word or of a difference
    r"<?[-=]{2,}>?|<[-=]|[-=]>|(?<=[|`+])-|-(?=[\\/|+])"
)
DIAGONAL = re.compile(r"\\|(?<=  )/|(?<=-)/|/(?=  |$)")
CORNERS = re.compile(r"(?<=[-=])[.'](?![.\w])|(?<![\w-])['`](?=-)|(?<=-)''(?=-)|\+")


class Drawing:
    def __init__(self, text):
        lines = text.rstrip("\n").split("\n")
        self.columns = max(map(len, lines))
        self.lines = [line.ljust(self.columns) for line in lines]
        self.shapes = []
        self.drawn = [[False] * self.columns for _ in lines]

    def at(self, row, column):
        inside = 0 <= row < len(self.lines) and 0 <= column < self.columns
        return self.lines[row][column] if inside else " "

    def take(self, row, begin, end):
        """Marks characters of a row as drawn, so that words() does not draw them as text too."""
        self.drawn[row][begin:end] = [True] * (end - begin)

    def box(self, row, begin, end, color, inset=2, about="fill"):
        """Draws a box from the left edge of column `begin` to the left edge of column `end`. The
        two may be fractions: 3.5 is the middle of column 3."""
        self.shapes.append(
            f'<rect x="{begin * WIDE}" y="{row * HIGH + inset}" width="{(end - begin) * WIDE}" '
            f'height="{HIGH - 2 * inset}" class="{about}" style="--color: var(--{color})"/>'
        )

    def path(self, path, name="line"):
        self.shapes.append(f'<path d="{path}" class="{name}"/>')

    def text(self, row, begin, text, name=""):
        self.shapes.append(
            f'<text x="{begin * WIDE:g}" y="{row * HIGH + 14}" '
            f'textLength="{len(text) * WIDE}"{name and f" class={name!r}"}>'
            f"{html.escape(text)}</text>"
        )

    def schedule(self, row, begin, text, computes):
        """Draws the bars in a row of a schedule. In the row's text, a digit is a unit, R is the
        root unit, and r before a unit is the reduction of its gradients."""
        for part in re.finditer(r"(\.*)(r?[\dR]?)([=-]*)(\||$)", text):
            dots, unit, line, _ = part.groups()
            left = begin + part.start() + len(dots)
            right = left + len(unit + line)
            if dots:
                middle = (row + 0.5) * HIGH
                self.path(f"M{(left - len(dots)) * WIDE} {middle}H{left * WIDE}", "dots")
            if unit:
                color = ("reduce-scatter" if unit[0] == "r" else
                         computes if "=" in line else "all-gather")
                self.box(row, left, right + 0.75, color)
                self.text(row, (left + right + 0.75 - len(unit)) / 2, unit,
                          "on" if "=" in line else "light")
        self.take(row, begin, self.columns)

    def values(self, row, begin, text):
        for part in re.finditer(r"(\d)\1*|\.+", text):
            left, right, digit = begin + part.start(), begin + part.end(), part[1]
            self.box(row, left, right, VALUE_COLORS[int(digit) % 3] if digit else "rest")
            if digit:
                self.text(row, (left + right - 1) / 2, digit, "light")
        self.take(row, begin, begin + len(text))

    def cells(self, row, line):
        """Draws the text between two `|` of a row as a cell, unless the `|` belong to a tree or a
        list."""
        bars = [i for i, character in enumerate(line) if character == "|"]
        for begin, end in zip(bars, bars[1:]):
            inside = line[begin + 1 : end]
            if re.match(r" *(-|$)", inside) or re.search(r"\[ |`-", line):
                continue
            filled = "all-gather" if set(inside) == {"."} else ""
            about = "fill" if filled else "cell"
            self.box(row, begin + 0.5, end + 0.5, filled or "panel", 1, about)
            self.take(row, begin, begin + 1)
            self.take(row, end, end + 1)
            if filled:
                self.take(row, begin, end)

    def lines_of(self, row, line):
        y = (row + 0.5) * HIGH
        for found in LINE.finditer(line):
            text, begin, end = found[0], found.start(), found.end()
            if any(self.drawn[row][begin:end]):
                continue
            left = (begin - (self.at(row, begin - 1) == "|") / 2) * WIDE
            right = end * WIDE
            if "=" in text:  # = is a double line
                self.path(f"M{left} {y - 1.5}H{right}M{left} {y + 1.5}H{right}")
            else:
                self.path(f"M{left} {y}H{right}")
            if text[0] == "<":
                self.path(f"M{left} {y}l8 -4.5v9z", "head")
            if text[-1] == ">":
                self.path(f"M{right} {y}l-8 -4.5v9z", "head")
            self.take(row, begin, end)

    def corners_of(self, row, line):
        y = (row + 0.5) * HIGH
        for found in CORNERS.finditer(line):
            for column in range(*found.span()):
                left, right = self.at(row, column - 1) in "-=", self.at(row, column + 1) in "-="
                above = self.at(row - 1, column) in "|+." or line[column] in "'`"
                below = self.at(row + 1, column) in "|+'`" or line[column] == "."
                if line[column] == "+" and not (left or right):
                    continue
                x = (column + 0.5) * WIDE
                ways = ((left, f"H{x - WIDE / 2}"), (right, f"H{x + WIDE / 2}"),
                        (above and line[column] != ".", f"V{y - HIGH / 2}"),
                        (below and line[column] not in "'`", f"V{y + HIGH / 2}"))
                self.path("".join(f"M{x} {y}{way}" for is_there, way in ways if is_there))
                self.take(row, column, column + 1)

    def single_characters(self, row, line):
        top, middle = row * HIGH, (row + 0.5) * HIGH
        for column, character in enumerate(line):
            x = (column + 0.5) * WIDE
            alone = self.at(row, column - 1) == self.at(row, column + 1) == " "
            if self.drawn[row][column]:
                continue
            if character == "|":
                self.path(f"M{x} {top}V{top + HIGH}")
            elif character == "^" and alone and self.at(row + 1, column) == "|":
                self.path(f"M{x} {top + 5}l-4.5 8h9z", "head")
                self.path(f"M{x} {middle}V{top + HIGH}")
            elif character == "v" and alone and self.at(row - 1, column) == "|":
                self.path(f"M{x} {top + 14}l-4.5 -8h9z", "head")
                self.path(f"M{x} {top}V{middle}")
            else:
                continue
            self.take(row, column, column + 1)
        for found in DIAGONAL.finditer(line):
            left, right = found.start() * WIDE, found.end() * WIDE
            falls = found[0] == "\\"
            begin = middle if self.at(row, found.start() - 1) == "-" else top + HIGH * (not falls)
            self.path(f"M{left} {begin}L{right} {top + HIGH * falls}")
            self.take(row, *found.span())
        for found in re.finditer(r"~+|\.{4,}", line):
            if any(self.drawn[row][slice(*found.span())]):
                continue
            if found[0][0] == "~":
                self.box(row, *found.span(), "rest", 4)
            else:
                self.path(f"M{found.start() * WIDE} {middle}H{found.end() * WIDE}", "dots")
            self.take(row, *found.span())

    def words(self, row, line):
        left = "".join(" " if self.drawn[row][i] else line[i] for i in range(self.columns))
        for found in re.finditer(r"\S+(?: \S+)*", left):
            self.text(row, found.start(), found[0])

    def svg(self):
        computes = "backward"
        for row, line in enumerate(self.lines):
            if line.startswith(("forward", "backward")):
                computes = line.split(",")[0].split()[0]
            bars, values = BARS.match(line.rstrip()), VALUES.search(line)
            if bars:
                self.schedule(row, len(bars[1]), bars[2], computes)
            if values:
                self.values(row, values.start(), values[0])
            if not bars:
                self.cells(row, line)
        for row, line in enumerate(self.lines):
            self.lines_of(row, line)
            self.corners_of(row, line)
            self.single_characters(row, line)
            self.words(row, line)
        width, height = self.columns * WIDE + 2, len(self.lines) * HIGH
        return (f'<svg viewBox="-1 0 {width} {height}" width="{width}" height="{height}" '
                f'aria-hidden="true">{"".join(self.shapes)}</svg>')


def figure(text):
    """Returns a figure as a Markdown block of HTML: the drawing, and the figure's text in a
    <pre>."""
    return (f'```{{raw}} html\n<figure class="drawing">{Drawing(text).svg()}<pre>'
            f"{html.escape(text.rstrip())}</pre></figure>\n```")


def with_drawings(text):
    return FIGURE.sub(lambda match: figure(match[1]), text)
