"""A header as the pieces that its compiler reads, and types in one spelling."""

import re

from grader import source_text

PIECES = re.compile(r"[^\W\d]\w*|::|->|\.?\d(?:'?[\w.])*|[^\s\w]")
WORD = re.compile(r"[^\W\d]\w*")
OF_STD = re.compile(r"u?int(8|16|32|64)_t|size_t|ptrdiff_t")
PAIRS = {"(": ")", "[": "]", "{": "}"}
MOST_WORDS = 1000  # of a type that is compared; the time that it takes grows with the square


def spliced(text):
    """With lines joined that a backslash joins. The line behind keeps its number."""
    first, *others = source_text.SPLICE.split(text)
    found, joined = [first], 0
    for part in others:
        joined += 1
        line, end, rest = part.partition("\n")
        found += [line, end * (1 + joined), rest]
        joined = 0 if end else joined
    return "".join(found)


def code_of(text):
    """Without comments, directives and what is in quotes."""
    text = spliced(text.replace("\r\n", "\n"))

    def blank(token):
        if token["comment"]:
            return " " + "\n" * token[0].count("\n")
        return '""' if token["text"] else token[0]

    lines = source_text.TOKENS.sub(blank, text).split("\n")
    return "\n".join("" if line.lstrip().startswith(("#", "%:")) else line for line in lines)


def begin_of_type(words):
    """Index of the first of the words that make the type at their end: std :: vector < int >."""
    at = len(words) - 1
    if words[at] == ">":
        depth = 0
        while at >= 0:
            depth += {">": 1, "<": -1}.get(words[at], 0)
            at -= 1
            if depth == 0:
                break
    while at >= 2 and words[at - 1] == "::" and WORD.fullmatch(words[at - 2]):
        at -= 2
    return max(at, 0)


def plain(words):
    """The same for what is spelled in another way and means the same: std::int64_t, torch::Tensor, int const."""
    if len(words) > MOST_WORDS:
        return " ".join(words)
    found = []
    for word in words:
        named_in = found[-2] if found[-1:] == ["::"] and found[-3:-2] != ["::"] and len(found) > 1 else ""
        if named_in == "std" and OF_STD.fullmatch(word):
            del found[-2:]
        elif named_in == "torch" and word == "Tensor":
            found[-2] = "at"
        elif word == "}" and found[-1:] == [","]:
            found.pop()
        elif word == "const" and found and (found[-1] == ">" or WORD.fullmatch(found[-1])):
            if found[-1] != "const":
                found.insert(begin_of_type(found), "const")
                continue
        found.append(word)
    return " ".join(found)


class Refusal(Exception):
    """why, at the piece of this index"""

    def __init__(self, why, at):
        super().__init__(why)
        self.at = at


class Pieces:
    """Of code, and a place among them."""

    def __init__(self, code):
        lines = [PIECES.findall(line) for line in code.split("\n")]
        self.pieces = [piece for line in lines for piece in line]
        self.lines = [number for number, line in enumerate(lines, 1) for _ in line]
        self.at = 0

    def refuse(self, why, at=None):
        raise Refusal(why, self.at if at is None else at)

    def piece(self, ahead=0):
        at = self.at + ahead
        return self.pieces[at] if at < len(self.pieces) else ""

    def after_group(self, at):
        """Behind the parenthesis, bracket or brace that closes the one at `at`."""
        open_ = []
        for i in range(at, len(self.pieces)):
            if self.pieces[i] in PAIRS:
                open_.append(PAIRS[self.pieces[i]])
            elif self.pieces[i] in PAIRS.values():
                if not open_ or open_.pop() != self.pieces[i]:
                    break
                if not open_:
                    return i + 1
        return self.refuse("has parentheses or braces that do not close", at)

    def after_angles(self, at):
        """Behind the > that closes the < at `at`."""
        depth, i = 0, at
        while i < len(self.pieces):
            if self.pieces[i] in PAIRS:
                i = self.after_group(i)
                continue
            depth += {"<": 1, ">": -1}.get(self.pieces[i], 0)
            i += 1
            if depth == 0:
                return i
        return self.refuse("has a < that does not close", at)

    def skip_attributes(self):
        while self.piece() == "[" and self.piece(1) == "[":
            self.at = self.after_group(self.at)
        while self.piece() in ("alignas", "__attribute__"):
            self.at = self.after_group(self.at + 1)
            self.skip_attributes()
