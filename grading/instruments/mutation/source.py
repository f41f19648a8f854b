"""Reads clang-format's C++, and no more of it than the solutions use."""

import re

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
LAMBDA = re.compile(r"\](\s*\((?:[^()]|\([^()]*\))*\))?(\s*mutable)?(\s*->\s*[\w:<>]+)?\s*\{")
DECLARATION = re.compile(r"(?:(?:static|thread_local|const) )*([\w:]+(?:<[^;=()]*>)?)(?: |[&*] ?)(\w+|\[[\w, ]+\])"
                         r"(?= =|;|\(|\{)")
KEYWORDS = {"return", "throw", "delete", "new", "using", "else", "if", "for", "while", "try", "catch"}


def masked(text):
    """As long as `text`, with blanks for comments and preprocessor lines and "_" in string literals."""

    def hide(match):
        found = match.group()
        if found[0] in "\"'":
            return found[0] + "_" * (len(found) - 2) + found[0]
        return re.sub(r"[^\n]", " ", found)

    return re.sub(r'//[^\n]*|/\*.*?\*/|(?m:^#[^\n]*)|"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\])+\'', hide, text,
                  flags=re.S)


class Source:
    """A file, as positions in its text."""

    def __init__(self, name, text):
        self.name, self.text, self.mask = name, text, masked(text)
        self.plain = COMMENT.sub(lambda hit: re.sub(r"[^\n]", " ", hit.group()), text)  # without comments

    def match(self, at):
        """Where the bracket at `at` closes."""
        depth = 0
        for i in range(at, len(self.mask)):
            depth += (self.mask[i] in "([{") - (self.mask[i] in ")]}")
            if depth == 0:
                return i
        raise ValueError(f"{self.name}: no bracket closes that at {at}")

    def top(self, begin, end, pattern):
        """(begin, end) of what matches `pattern` in no bracket that opens after `begin`."""
        i, found = begin, []
        while i < end:
            hit = re.compile(pattern).match(self.mask, i, end)
            if hit:
                found.append(hit.span())
                i = hit.end()
            else:
                i = self.match(i) + 1 if self.mask[i] in "([{" else i + 1
        return found

    def parts(self, begin, end, pattern):
        """The parts between what matches `pattern`."""
        ends = self.top(begin, end, pattern)
        return list(zip([begin] + [e for _, e in ends], [b for b, _ in ends] + [end]))

    def next(self, at):
        return re.compile(r"\s*").match(self.mask, at).end()

    def end_of(self, at):
        """Where the statement that begins at `at` ends."""
        if self.mask[at] == "{":
            return self.match(at) + 1
        word = self.word(at)
        if word in ("if", "for", "while"):
            end = self.end_of(self.next(self.match(self.mask.index("(", at)) + 1))
            if word == "if" and self.mask.startswith("else", self.next(end)):
                end = self.end_of(self.next(self.next(end) + 4))
            return end
        if word == "try":
            end = self.match(self.mask.index("{", at)) + 1
            while self.mask.startswith("catch", self.next(end)):
                end = self.match(self.mask.index("{", end)) + 1
            return end
        return self.top(at, len(self.mask), ";")[0][1]

    def lambdas(self, begin, end):
        """(begin of the captures, begin and end of the body, parameters) of the outermost lambdas."""
        at = begin
        while hit := LAMBDA.search(self.mask, at, end):
            close = self.match(hit.end() - 1)
            yield self.mask.rindex("[", begin, hit.start()), hit.end(), close, hit.group(1) or ""
            at = close

    def find(self, pattern, begin, end):
        return re.compile(pattern).finditer(self.mask, begin, end)

    def word(self, at):
        return re.compile(r"\w*").match(self.mask, at).group()

    def one_line(self, begin, end):
        return " ".join(self.plain[begin:end].split())

    def is_expression(self, begin, end):
        """Whether this statement is neither compound nor a declaration."""
        return not (self.word(begin) in KEYWORDS or self.mask[begin] == "{"
                    or DECLARATION.match(self.mask, begin, end))
