"""Reads what a header declares: names, types and variables, not expressions. What it cannot read is
refused, too."""

import dataclasses
import re

from grader import source_text

PIECES = re.compile(r"[^\W\d]\w*|::|->|\.?\d(?:'?[\w.])*|[^\s\w]")
WORD = re.compile(r"[^\W\d]\w*")
MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}")
CLASSES = ("class", "struct", "union", "enum")
IN_PARENTHESES = ("decltype", "alignas", "noexcept", "explicit", "requires", "__attribute__")
NO_PART_OF_A_TYPE = {"inline", "static", "virtual", "explicit", "constexpr", "friend", "extern"}
PAIRS = {"(": ")", "[": "]", "{": "}"}


class Refusal(Exception):
    """why, at the piece of this index"""

    def __init__(self, why, at):
        super().__init__(why)
        self.at = at


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


@dataclasses.dataclass
class Header:
    """What a header declares, each with the index of its first piece."""

    names: dict = dataclasses.field(default_factory=dict)  # outside of classes
    inner: dict = dataclasses.field(default_factory=dict)  # types in classes
    # "NAME" or "CLASS::NAME" -> {what it is: index}, of what the tests may use: of a function its type,
    # of a class its kind, of an enumeration and of an alias all of it.
    seen: dict = dataclasses.field(default_factory=dict)
    words: frozenset = frozenset()


class Reader:
    def __init__(self, code):
        lines = [PIECES.findall(line) for line in code.split("\n")]
        self.pieces = [piece for line in lines for piece in line]
        self.lines = [number for number, line in enumerate(lines, 1) for _ in line]
        self.header = Header(words=frozenset(filter(WORD.fullmatch, self.pieces)))
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

    def declare(self, name, at):
        self.header.names.setdefault(name, at)

    def see(self, name, what, at):
        self.header.seen.setdefault(name, {}).setdefault(what, at)

    def read(self):
        while self.piece():
            self.declaration(outside=True)
        return self.header

    def scope(self):
        """What stands in the braces that begin here."""
        self.at += 1
        while self.piece() != "}":
            if not self.piece():
                self.refuse("ends inside a namespace")
            self.declaration()
        self.at += 1

    def declaration(self, outside=False):
        """`outside`: of every namespace."""
        self.skip_attributes()
        first = self.piece()
        if first == ";":
            self.at += 1
        elif first == "namespace" or (first == "inline" and self.piece(1) == "namespace"):
            self.namespace(outside)
        elif first == "using":
            self.declare(self.using(visible=True), self.at)
        elif first == "static_assert":
            self.at = self.after_group(self.at + 1)
        elif first == "template":
            self.at += 1
            if self.piece() == "<":
                self.at = self.after_angles(self.at)
            self.declaration()
        elif first == "concept" or (first in CLASSES and self.is_type()):
            self.type_()
        else:
            self.function_or_variable()

    def namespace(self, outside):
        begin = self.at
        if self.piece() == "inline":
            self.refuse("has an inline namespace")
        self.at += 1
        path = []
        while WORD.fullmatch(self.piece()) or self.piece() == "::":
            path.append(self.piece())
            self.at += 1
        if self.piece() == "=":
            self.refuse(f"gives a namespace the name {'::'.join(path)}", begin)
        if not path or self.piece() != "{":
            self.refuse("has a namespace without a name: it would hide names from the tests", begin)
        if not outside or path != ["fsdp"]:
            self.declare(next((word for word in path if word not in ("fsdp", "::")), "fsdp"), begin)
        self.scope()

    def using(self, visible, class_=""):
        """The name that it gives."""
        begin = self.at
        if self.piece(1) in ("namespace", "enum"):
            self.refuse(f"has `using {self.piece(1)}`, which brings names into the tests")
        while self.piece() not in (";", ""):
            self.at += 1
        words = self.pieces[begin + 1:self.at]
        end = words.index("=") if "=" in words else len(words)
        name = next(filter(WORD.fullmatch, reversed(words[:end])), "")
        if visible:
            self.see(class_ + name, "using " + " ".join(words), begin)
        return name

    def is_type(self):
        """Whether a class is declared here, and not a function that returns one."""
        at = self.at + 1
        while at < len(self.pieces) and (WORD.fullmatch(self.pieces[at]) or self.pieces[at] == "::"):
            at += 1
        if at < len(self.pieces) and self.pieces[at] == "<":
            at = self.after_angles(at)
        path = self.pieces[self.at + 1:at]
        return self.pieces[at:at + 1] in ([";"], ["{"], [":"]) or path[-1:] == ["final"]

    def type_(self, class_="", visible=True):
        """A class or enumeration, up to its semicolon, or a concept. `class_`: in which it stands, and
        `visible`: whether the tests may name it."""
        begin, kind = self.at, self.piece()
        self.at += 1
        while self.piece() in CLASSES:
            self.at += 1
        self.skip_attributes()
        name = self.piece()
        if not WORD.fullmatch(name):
            self.refuse(f"has a {kind} without a name")
        if not class_:
            self.declare(name, begin)
        while self.piece() not in ("{", ";", ""):
            self.at += 1
        if self.piece() == "{" and kind in ("enum", "concept"):
            self.enumerators(not class_ and not {"class", "struct"} & set(self.pieces[begin:self.at]))
            self.at = self.after_group(self.at)
            kind = " ".join(self.pieces[begin:self.at])
        elif self.piece() == "{":
            self.class_body(f"{class_}{name}::", visible, public=kind != "class")
        if visible:
            self.see(class_ + name, "class" if kind in CLASSES else kind, begin)
        if self.piece() != ";":
            self.refuse(f"has a variable of {name}", begin)
        self.at += 1

    def enumerators(self, names):
        for i in range(self.at, self.after_group(self.at) if names else 0):
            if self.pieces[i] in ("{", ",") and WORD.fullmatch(self.pieces[i + 1]):
                self.declare(self.pieces[i + 1], i + 1)

    def class_body(self, class_, visible, public):
        self.at += 1
        while self.piece() != "}":
            if not self.piece():
                self.refuse(f"ends inside {class_[:-2]}")
            self.skip_attributes()
            if self.piece() in ("public", "private", "protected") and self.piece(1) == ":":
                public = self.piece() == "public"
                self.at += 2
            elif self.piece() == ";":
                self.at += 1
            elif self.piece() == "template" and self.piece(1) == "<":
                self.at = self.after_angles(self.at + 1)
            elif self.piece() in CLASSES and self.is_type():
                inner = self.piece(2) if self.piece(1) in CLASSES else self.piece(1)
                self.header.inner.setdefault(inner, self.at)
                self.type_(class_, visible and public)
            elif self.piece() == "using":
                inner = self.using(visible and public, class_)
                self.header.inner.setdefault(inner, self.at)
            else:
                begin = self.at
                name, what = self.function_or_variable(member=True)
                if visible and public:
                    self.see(class_ + name, what, begin)
        self.at += 1

    def function_or_variable(self, member=False):
        """Goes behind it. Returns its name, of a function `operator` with its sign, and its type."""
        begin, name_at, is_function = self.at, None, False
        while self.piece() not in (";", "=", "{", "}", ":", "") and not is_function:
            word = self.piece()
            if MACRO.fullmatch(word):
                self.refuse(f"uses the macro {word} outside of a function")
            if word in ("typedef", '"'):
                self.refuse("has a typedef: write `using`" if word == "typedef" else "has extern of a language")
            if word == "~":
                name_at, is_function = self.at, True
                self.at += 2
            elif word == "operator":
                name_at, is_function = self.at, True
                self.at += 3 if self.piece(1) == "(" else 1
                while self.piece() not in ("(", ""):
                    self.at += 1
            elif word in IN_PARENTHESES and self.piece(1) == "(":
                self.at = self.after_group(self.at + 1)
            elif word == "(":
                name_at, is_function = self.at - 1, True
            elif word == "<":
                self.at = self.after_angles(self.at)
            elif word == "[":
                name_at = name_at or self.at - 1
                self.at = self.after_group(self.at)
            else:
                self.at += 1
        name_at = self.at - 1 if name_at is None else name_at
        head, end_of_name = self.pieces[begin:name_at], self.at
        first = self.first_part_of_name(begin, name_at)
        has_body = self.end_of_declaration(is_function)
        self.refuse_variable(begin, head, is_function, has_body, member)
        what = " ".join(word for word in head if word not in NO_PART_OF_A_TYPE)
        if not member or ("friend" in head and is_function):
            self.declare(first, begin)
        if not member:
            self.see(first, what, begin)
        sign = "".join(self.pieces[name_at:end_of_name]) if first in ("operator", "~") else first
        return ("", what) if "friend" in head else (sign, what)

    def first_part_of_name(self, begin, at):
        """Of the name that ends at the piece `at`, as in Class::member."""
        if at < begin or not (WORD.fullmatch(self.pieces[at]) or self.pieces[at] == "~"):
            self.refuse("declares what is hard to read", begin)
        while at - 2 >= begin and self.pieces[at - 1] == "::" and WORD.fullmatch(self.pieces[at - 2]):
            at -= 2
        return self.pieces[at]

    def end_of_declaration(self, is_function):
        """Goes behind it. Returns whether it has a body, as the definition of a function."""
        while self.piece() not in (";", ""):
            if self.piece() == "}":
                self.refuse("has a declaration that does not end")
            if self.piece() not in PAIRS:
                self.at += 1
                continue
            brace = self.piece() == "{"
            self.at = self.after_group(self.at)
            if brace and is_function and self.piece() not in (",", "{", ";", "("):
                return True
        self.at += 1
        return is_function and self.pieces[self.at - 2] == "}"

    def refuse_variable(self, begin, head, is_function, has_body, member):
        """Unless it is a constant. Foo x(1); is taken for a function, unless it has to be a variable."""
        words = set(head)
        if member:
            is_variable = not is_function and words >= {"static", "inline"}
        elif is_function and not has_body:
            is_variable = (bool(words & {"static", "inline"}) or head[-1:] == ["::"]
                           or head[:1] == ["const"] and not words & {"&", "*"})
        else:
            is_variable = not is_function
        if is_variable and "constexpr" not in words:
            self.refuse("has a variable, which would be made before the tests begin: a header holds "
                        "constants (constexpr) alone", begin)
