"""Mutants of a C++ file: small changes of one statement each, all compiled together behind switches.

mutate() writes the file once more, with every statement in all its forms; FSDP_MUTANT chooses the one
that runs. It reads clang-format's output, and no C++ beyond what the solutions use.
"""

import dataclasses
import hashlib
import pathlib
import re

from mutation.changes import Changes
from mutation.source import DECLARATION, masked

HEADER = pathlib.Path(__file__).resolve().with_name("mutant.h")
MARK = "//@"  # at the end of a line that belongs to one mutant: its number


@dataclasses.dataclass(frozen=True)
class Mutant:
    number: int  # among those of its task
    file: str
    line: int
    function: str
    old: str  # the changed part of the lines
    new: str
    key: str  # which stays while the file does
    statement: int  # where it begins


class Switches(Changes):
    """Writes the file with its mutants."""

    def __init__(self, name, text, number, dropped, members):
        super().__init__(name, text, members)
        self.mutants, self.number, self.dropped = [], number, dropped
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.function, self.statement_at, self.seen = "", 0, {}

    def line_of(self, begin, end, new):
        """The lines of begin..end in one, before and after the change."""
        first = self.text.rfind("\n", 0, begin) + 1
        last = self.text.find("\n", end)
        tidy = lambda text: " ".join(text.split())  # noqa: E731
        return (tidy(self.plain[first:last]), tidy(self.plain[first:begin] + new + self.plain[end:last]))

    def add(self, begin, end, new, old_and_new=None):
        """The number of a new mutant, or None if it does not compile."""
        old, new = old_and_new or self.line_of(begin, end, new)
        place = (self.function, old, new)
        self.seen[place] = self.seen.get(place, 0) + 1
        key = hashlib.sha256(f"{self.digest} {place} {self.seen[place]}".encode()).hexdigest()[:16]
        line = self.text.count("\n", 0, begin) + 1
        self.number += 1
        self.mutants.append(Mutant(self.number, self.name, line, self.function, old, new, key, self.statement_at))
        return None if key in self.dropped else self.number

    def variants(self, begin, end, edits, form):
        """form(number, begin..end as one line with the edit) for each edit that compiles."""
        made, texts = [], {" ".join(self.plain[begin:end].split())}
        for b, e, new in edits:
            text = " ".join((self.plain[begin:b] + new + self.plain[e:end]).split())
            if text in texts:
                continue
            texts.add(text)
            number = self.add(b, e, new)
            if number:
                made.append(form(number, text) + f" {MARK}{number}\n")
        return "".join(made)

    def chosen(self, begin, end, edits, inner=None, cast=""):
        """begin..end as an expression that switches."""
        inner = self.plain[begin:end] if inner is None else inner
        made = self.variants(begin, end, edits, lambda n, text: f"fsdp::mutant() == {n} ? {cast}({text}) :")
        return f"(\n{made}{cast}({inner}))" if made else inner

    def block(self, begin, end):
        """The statements of begin..end."""
        out, at, before = [], begin, None  # before: where the text of the statement before begins
        while (start := self.next(at)) < end:
            at = self.end_of(start)
            moved = self.moved_up(start, at) if before is not None else None
            if moved:
                out.insert(before, f"if (fsdp::mutant() == {moved}) {{ {self.one_line(start, at)} }} {MARK}{moved}\n")
            before = len(out)
            text = self.statement(start, at)
            out.append((f"if (fsdp::mutant() != {moved}) {{\n{text}}}" if moved else text) + "\n")
        return "".join(out)

    def first_line(self, begin, end):
        return self.plain[begin:end].splitlines()[0].strip()

    def moved_up(self, begin, end):
        if not self.is_expression(begin, end) or not re.search(r"[\w>]\(", self.mask[begin:end]):
            return None  # two assignments may change places
        self.statement_at = begin
        return self.add(begin, begin, "", (self.first_line(begin, end), "moved up"))

    def statement(self, begin, end):
        self.statement_at = begin
        word = self.word(begin)
        if self.mask[begin] == "{":
            return "{\n" + self.block(begin + 1, end - 1) + "}\n"
        if word in ("if", "for", "while"):
            return self.compound(word, begin, end)
        if word == "try":
            return self.tried(begin, end)
        if word in ("throw", "using"):
            return self.plain[begin:end] + "\n"
        if self.mask[begin:end] == "return;":
            drop = self.add(begin, end, "")
            return f"if (fsdp::mutant() != {drop or -1}) return;\n"
        if word == "return":
            made = self.variants(begin, end, self.edits(begin + 6, end - 1),
                                 lambda n, text: f"if (fsdp::mutant() == {n}) {{ {text} }}")
            return made + self.inner(begin, end) + "\n"
        if self.is_expression(begin, end):
            self.bare = not self.top(begin, end, r"\s[+|-]?=\s")
            made = self.variants(begin, end, list(self.edits(begin, end - 1)),
                                 lambda n, text: f"if (fsdp::mutant() == {n}) {{ {text} }} else")
            self.bare = False
            drop = self.add(begin, end, "", (self.first_line(begin, end), "left out"))
            return f"{made}if (fsdp::mutant() != {drop or -1}) {{\n{self.inner(begin, end)}\n}}\n"
        return self.declaration(begin, end)

    def inner(self, begin, end):
        """begin..end with what is changed inside its lambdas."""
        out, at = [], begin
        for open_, body, close, parameters in self.lambdas(begin, end):
            known = list(self.names)
            self.add_parameters(parameters)
            out += [self.plain[at:open_], self.captures(open_, body), self.block(body, close)]
            self.names, at = known, close
        return "".join(out) + self.plain[at:end]

    def captures(self, open_, body):
        """[self, unit](...) { with pointers that own nothing, and weak ones that own."""
        close = self.match(open_)
        made = []
        for b, e in self.parts(open_ + 1, close, r",\s*"):
            text = self.plain[b:e]
            hit = re.fullmatch(r"(?:(\w+) = )?([^&=].*)", text, re.S)
            if hit and text != "this":
                call = "held" if "weak" in hit.group(2) else "unowned"
                new = f"{hit.group(1) or text} = fsdp::{call}"
                number = self.add(b, e, f"{new}({hit.group(2)})")
                text = f"\n{new}({number}, {hit.group(2)}) {MARK}{number}\n" if number else text
            made.append(text)
        return "[" + ", ".join(made) + self.plain[close:body] + "\n"

    def compound(self, word, begin, end):
        open_ = self.mask.index("(", begin)
        close = self.match(open_)
        body = self.next(close + 1)
        body_end = self.end_of(body)
        head = self.inner(open_ + 1, close)
        known = list(self.names)
        drop = None
        if word == "for":
            drop = self.add(begin, close + 1, "", (self.first_line(begin, close + 1), "left out"))
            parts = self.parts(open_ + 1, close, ";")
            if len(parts) == 3:
                self.note_declaration(*parts[0])
                first = self.initialized(*parts[0])
                condition = self.chosen(*parts[1], self.edits(*parts[1]))
                head = f"{first}; {condition}; {self.plain[slice(*parts[2])]}"
        elif not self.top(open_ + 1, close, r"\s=\s"):
            whole = [(open_ + 1, close, text) for text in (("true", "false") if word == "if" else ("false",))]
            lone = not self.top(open_ + 1, close, r"\s(&&|\|\|)\s")
            edits = [e for e in self.edits(open_ + 1, close)  # true or false is harder to see than both
                     if not (lone and (e[2] in ("==", "!=") or self.mask[e[0]] == "!"))]
            head = self.chosen(open_ + 1, close, whole + edits, head, cast="bool")
        text = f"{word} ({head}) {{\n{self.statement(body, body_end)}}}\n"
        self.names = known
        otherwise = self.next(body_end)
        if otherwise < end and self.mask.startswith("else", otherwise):
            text += f"else {{\n{self.statement(self.next(otherwise + 4), end)}}}\n"
        return f"if (fsdp::mutant() != {drop}) {{\n{text}}}\n" if drop else text

    def tried(self, begin, end):
        out, at = [], begin
        while at < end:
            open_ = self.mask.index("{", at)
            close = self.match(open_)
            out.append(self.plain[at:open_] + "{\n" + self.block(open_ + 1, close) + "}")
            at = self.next(close + 1)
        return "".join(out) + "\n"

    def note_declaration(self, begin, end):
        hit = DECLARATION.match(self.mask, self.next(begin))
        if hit:
            self.names.append(hit.groups())

    def initialized(self, begin, end):
        """A declaration, without the semicolon, whose value switches."""
        equals = self.top(begin, end, r"\s=\s")
        if equals:
            value = self.next(equals[0][1])
            inner = self.inner(value, end)
            edits = [] if self.mask[value] in "[{" else self.edits(value, end)
            return self.plain[begin:value] + self.chosen(value, end, edits, inner)
        hit = DECLARATION.match(self.mask, begin)
        if self.mask[hit.end():hit.end() + 1] == "(":
            return self.plain[begin:hit.end() + 1] + self.arguments(hit.end() + 1, end - 1) + ")"
        return self.inner(begin, end)

    def arguments(self, begin, end):
        return ", ".join(self.chosen(b, e, self.edits(b, e), self.inner(b, e))
                         for b, e in self.parts(begin, end, r",\s*") if b < e)

    def declaration(self, begin, end):
        text = self.one_line(begin, end)
        guard = re.fullmatch(r"(?:const )?((?:\w|::)+(?:Guard|Scope|Rewound)) (\w+)(?:\((.*)\))?;", text)
        drop = guard and self.add(begin, end, "", (text, "left out"))
        if drop:
            value = self.arguments(self.mask.index("(", begin) + 1, end - 2) if guard.group(3) else ""
            return (f"std::optional<{guard.group(1)}> {guard.group(2)}; "
                    f"if (fsdp::mutant() != {drop}) {guard.group(2)}.emplace({value}); {MARK}{drop}\n")
        made = self.initialized(begin, end - 1) + ";\n"
        self.note_declaration(begin, end)
        return made

    def add_parameters(self, text):
        for kind, name in re.findall(r"([\w:]+(?:<[\w:<>]+>)?)[&*]? (\w+)(?=[,)])", text):
            self.names.append((kind, name))

    def scope(self, begin, end):
        """The definitions of begin..end, a namespace or a class."""
        out, start, at = [], begin, begin
        while at < end:
            if self.mask[at] in "([":
                at = self.match(at) + 1
            elif self.mask[at] == ";":
                out.append(self.text[start:at + 1])
                start = at = at + 1
            elif self.mask[at] == "{":
                close = self.match(at)
                head = self.mask[start:at].strip()
                if re.search(r"\b(namespace|struct|class)\b[^()=]*$", head) and "enum" not in head:
                    out.append(self.text[start:at + 1] + self.scope(at + 1, close) + "}")
                    start = close + 1
                elif head.endswith((")", "const", "noexcept", "override")):
                    out.append(self.defined(start, at, close))
                    start = close + 1
                elif "enum" not in head and "operator" not in head and self.mask[at + 1:close].strip():
                    self.function, self.statement_at = head.split()[-1], start
                    value = self.chosen(at + 1, close, self.edits(at + 1, close))
                    out.append(self.text[start:at + 1] + value + "}")
                    start = close + 1
                at = close + 1
            else:
                at += 1
        return "".join(out) + self.text[start:end]

    def defined(self, start, open_, close):
        """A function with its body in all forms."""
        head = self.mask[start:open_]
        self.function = re.search(r"([\w:~=]+)\(", head).group(1)
        known = list(self.names)
        parameters = start + head.index("(", head.index(self.function))
        self.add_parameters(self.mask[parameters:self.match(parameters) + 1])
        out, at = [], start
        after = self.match(parameters) + 1
        if self.mask[self.next(after)] == ":" or re.match(r"\s*:", self.mask[after:open_]):
            for b, e in self.parts(self.next(self.next(after) + 1), open_, r",\s*"):
                self.statement_at = b
                inner = self.mask.index("(", b) + 1
                last = self.match(inner - 1)
                out += [self.text[at:inner], self.arguments(inner, last)]
                at = last
        text = "".join(out) + self.text[at:open_] + "{\n" + self.block(open_ + 1, close) + "}"
        self.names = known
        return text


def members_in(header):
    """(type, name) of the members that a header declares."""
    return re.findall(r"(?m)^  ([\w:]+(?:<.*>)?)[&*]? (\w+)(?:\{.*\})?;", masked(header))


def mutate(file, text, number=0, dropped=frozenset(), members=()):
    """The file in all its forms, and its mutants, numbered from `number` + 1. Those whose key is in
    `dropped` are not in the text. `members`: (type, name) of variables that the file does not declare."""
    switches = Switches(file, text, number, dropped, members)
    body = switches.scope(0, len(text))
    include = f'#include "{HEADER}"\n'
    body = body.replace("#pragma once\n", f"#pragma once\n{include}", 1) if file.endswith(".h") else include + body
    return body, switches.mutants
