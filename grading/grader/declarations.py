"""Reads what a header declares: names, types and variables, not expressions. What it cannot read is
refused, too."""

import dataclasses
import re

from grader.pieces import PAIRS, WORD, Pieces, plain

MACRO = re.compile(r"[A-Z][A-Z0-9_]{2,}")
CLASSES = ("class", "struct", "union", "enum")
IN_PARENTHESES = ("decltype", "alignas", "noexcept", "explicit", "requires", "__attribute__")
NO_PART_OF_A_TYPE = {"inline", "static", "virtual", "explicit", "constexpr", "friend", "extern"}
# What a constant of literals consists of, its type and its value: making it runs no code. The names of std
# are used in the tests, so that no header can give them another meaning.
OF_A_CONSTANT = {"const", "static", "inline", "bool", "char", "short", "int", "long", "unsigned", "signed", "float",
                 "double", "size_t", "int64_t", "std", "::"}
OF_A_VALUE = {"=", "{", "}", "(", ")", "+", "-", "*", "true", "false", ",", ";"}
NUMBER = re.compile(r"0[xX][\da-fA-F']+[uUlLzZ]*|[\d'.]+([eE]\d*)?[uUlLzZfF]*")
SEVERAL = "declares several names at once: give each a declaration of its own"


@dataclasses.dataclass
class Header:
    """What a header declares, each with the index of its first piece."""

    names: dict = dataclasses.field(default_factory=dict)  # outside of classes
    inner: dict = dataclasses.field(default_factory=dict)  # types in classes
    forward: dict = dataclasses.field(default_factory=dict)  # classes of namespace fsdp that are only named
    classes: set = dataclasses.field(default_factory=set)  # of namespace fsdp
    bases: dict = dataclasses.field(default_factory=dict)  # class -> (its bases, index)
    # "NAME" or "CLASS::NAME" -> {what it is: index}, of what the tests may use: of a function its type,
    # with its default arguments, of a class its kind, of an enumeration and of an alias all of it.
    seen: dict = dataclasses.field(default_factory=dict)
    words: frozenset = frozenset()


class Reader(Pieces):
    def __init__(self, code):
        super().__init__(code)
        self.header = Header(words=frozenset(filter(WORD.fullmatch, self.pieces)))
        self.path = []  # of the namespaces around

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
        self.path.append("".join(path))
        self.scope()
        self.path.pop()

    def using(self, visible, class_=""):
        """The name that it gives."""
        begin = self.at
        if self.piece(1) in ("namespace", "enum"):
            self.refuse(f"has `using {self.piece(1)}`, which brings names into the tests")
        while self.piece() not in (";", ""):
            if self.piece() in (*CLASSES, "{"):
                self.refuse(f"has `using` with {self.piece()}: declare the type before, and name it here")
            self.at += 1
        words = self.pieces[begin + 1:self.at]
        end = words.index("=") if "=" in words else len(words)
        name = next(filter(WORD.fullmatch, reversed(words[:end])), "")
        if visible:
            self.see(class_ + name, "using " + plain(words), begin)
        return name

    def typedef(self, visible, class_):
        """In a class. The name that it gives."""
        begin = self.at
        while self.piece() not in (";", ""):
            if self.piece() in (*CLASSES, *PAIRS, ","):
                self.refuse("has a typedef that is hard to read: write `using`", begin)
            self.at = self.after_angles(self.at) if self.piece() == "<" else self.at + 1
        name = self.pieces[self.at - 1]
        if visible:
            self.see(class_ + name, f"using {name} = {plain(self.pieces[begin + 1:self.at - 1])}", begin)
        return name

    def class_head(self, at):
        """Of the class or enumeration whose first word is at `at`: its name, as words, and the index of what
        comes behind it."""
        here, self.at = self.at, at + 1
        while self.piece() in CLASSES:
            self.at += 1
        self.skip_attributes()
        begin = self.at
        if WORD.fullmatch(self.piece()):
            self.at += 1
        while self.piece() == "::" and WORD.fullmatch(self.piece(1)):
            self.at += 2
        name = self.pieces[begin:self.at]
        if self.piece() == "<":
            self.at = self.after_angles(self.at)
        if self.piece() == "final" and self.piece(1) in ("{", ":"):
            self.at += 1
        end, self.at = self.at, here
        return name, end

    def behind_class(self, at):
        if self.pieces[at] not in CLASSES:
            return ""
        behind = self.class_head(at)[1]
        return "".join(self.pieces[behind:behind + 1])

    def is_type(self):
        """Whether a class is declared here, and not a variable of one or a function that returns one."""
        return self.behind_class(self.at) in (";", "{", ":")

    def type_(self, class_="", visible=True):
        """A class or enumeration, up to its semicolon, or a concept. `class_`: in which it stands, and
        `visible`: whether the tests may name it."""
        begin, kind = self.at, self.piece()
        words, self.at = self.class_head(begin)
        path, name = "".join(words), next(filter(WORD.fullmatch, words), "")
        if not name and not class_ and kind != "enum":
            self.refuse(f"has a {kind} without a name outside of a class")
        head = self.at
        if kind == "concept":
            self.declare(name, begin)
            self.end_of_declaration(is_function=False, member=True)
            return
        while self.piece() not in ("{", ";", ""):
            self.at += 1
        self.declare_type(name, kind, begin, class_)
        if self.piece() == "{" and kind == "enum":
            self.enumerators(not class_ and self.pieces[begin + 1] not in ("class", "struct"))
            self.at = self.after_group(self.at)
            kind = plain(self.pieces[begin:self.at])
        elif self.piece() == "{":
            self.header.bases.setdefault(class_ + path, (" ".join(self.pieces[head + 1:self.at]), begin))
            self.class_body(f"{class_}{path}::", visible, public=kind != "class")
        if visible and name:
            self.see(class_ + path, "class" if kind in CLASSES else kind, begin)
        if self.piece() != ";":
            self.members_of_type(begin, name, class_)
        else:
            self.at += 1

    def declare_type(self, name, kind, begin, class_):
        is_of_fsdp = self.path == ["fsdp"] and self.pieces[begin - 1] in (";", "{", "}") and kind in ("class", "struct")
        if class_:
            self.header.inner.setdefault(name, begin)
        elif is_of_fsdp and self.piece() == ";":
            self.header.forward.setdefault(name, begin)
        elif name:
            self.declare(name, begin)
            if is_of_fsdp:
                self.header.classes.add(name)

    def members_of_type(self, begin, name, class_):
        """Those that are declared with their type, as in struct X {} x_;"""
        if not class_:
            self.refuse(f"has a variable of {name or 'an enum without a name'}", begin)
        at = self.at
        while self.piece() not in (";", "=", "{", ""):
            self.at += 1
        if wrong := {*NO_PART_OF_A_TYPE, "typedef", "thread_local", "("} & set(self.pieces[at:self.at]):
            self.refuse(f"has {min(wrong)} behind the type {name}: declare the type before, and name it here", at)
        self.end_of_declaration(is_function=False, member=True)

    def enumerators(self, names):
        for i in range(self.at, self.after_group(self.at) if names else 0):
            if self.pieces[i] in ("{", ",") and WORD.fullmatch(self.pieces[i + 1]):
                self.declare(self.pieces[i + 1], i + 1)
                self.see(self.pieces[i + 1], "an enumerator", i + 1)

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
                self.type_(class_, visible and public)
            elif self.piece() in ("using", "typedef"):
                read = self.using if self.piece() == "using" else self.typedef
                inner = read(visible and public, class_)
                self.header.inner.setdefault(inner, self.at)
            else:
                begin = self.at
                name, what, is_friend = self.function_or_variable(member=True)
                if is_friend and name.startswith("operator"):
                    self.see(class_ + name, what, begin)  # private or not
                elif visible and public and not is_friend:
                    self.see(class_ + name, what, begin)
        self.at += 1

    def names_constant(self, begin):
        """Whether the word here is the name of a constant, which has a type."""
        before = {*self.pieces[begin:self.at]}
        return (self.piece(1) in ("=", "{", "[") and before & {"constexpr", "const"}
                and before - NO_PART_OF_A_TYPE - {"const"})

    def function_or_variable(self, member=False):
        """Goes behind it. Returns its name, of a function `operator` with its sign, its type, and whether it
        is a friend."""
        begin, name_at, is_function = self.at, None, False
        while self.piece() not in (";", "=", "{", "}", ":", "") and not is_function:
            word = self.piece()
            if MACRO.fullmatch(word) and (name_at is not None or not self.names_constant(begin)):
                self.refuse(f"uses {word} outside of a function: a name in capitals could be a macro; use small letters")
            if word in ("typedef", '"'):
                self.refuse("has a typedef: write `using`" if word == "typedef" else "has extern of a language")
            if self.behind_class(self.at) in ("{", ":"):
                self.refuse("makes a type within another declaration: declare the type before, and name it here")
            if word == "," and not member:
                self.refuse(SEVERAL)
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
        has_body = self.end_of_declaration(is_function, member)
        self.refuse_variable(begin, name_at, end_of_name, is_function, has_body, member)
        what = plain([word for word in head if word not in NO_PART_OF_A_TYPE])
        defaults = self.defaults(end_of_name) if is_function else []
        if defaults:
            what += f" with {' '.join(defaults)}"
        is_friend = "friend" in head
        if not member or (is_friend and is_function and first != "operator"):
            self.declare(first, begin)
        defines_member = is_function and has_body and head[-1:] == ["::"] and not defaults
        if not member and not defines_member:
            self.see(first, what, begin)
        sign = "".join(self.pieces[name_at:end_of_name]) if first in ("operator", "~") else first
        return sign, what, is_friend

    def defaults(self, at):
        """From the first default argument on, of the parameters that begin at `at`."""
        depth = 0
        for i in range(at, self.after_group(at) - 1):
            if self.pieces[i] == "=" and depth == 1:
                return self.pieces[i:self.after_group(at) - 1]
            depth += (self.pieces[i] in PAIRS) - (self.pieces[i] in PAIRS.values())
        return []

    def first_part_of_name(self, begin, at):
        """Of the name that ends at the piece `at`, as in Class::member."""
        if at < begin or not (WORD.fullmatch(self.pieces[at]) or self.pieces[at] == "~"):
            self.refuse("declares what is hard to read", begin)
        while at - 2 >= begin and self.pieces[at - 1] == "::" and WORD.fullmatch(self.pieces[at - 2]):
            at -= 2
        return self.pieces[at]

    def begins_declarator(self):
        """Whether another name is declared behind the comma here."""
        before = ""
        for at in range(self.at + 1, len(self.pieces)):
            piece = self.pieces[at]
            if piece in ("=", "{", "[", ";", ",") or (piece == "(" and (before == ")" or WORD.fullmatch(before))):
                return True
            if not WORD.fullmatch(piece) and piece not in ("*", "&", "&&", "::", "(", ")"):
                return False
            before = piece
        return True

    def end_of_declaration(self, is_function, member):
        """Goes behind it. Returns whether it has a body, as the definition of a function."""
        has_initializers = False  # as a constructor has behind a colon
        while self.piece() != ";":
            has_initializers = has_initializers or (is_function and self.piece() == ":")
            if self.piece() in ("}", ""):
                self.refuse("has a declaration that does not end")
            if self.piece() == "," and not has_initializers:
                if is_function or (not member and self.begins_declarator()):
                    self.refuse(SEVERAL)
            if self.piece() == "<" and is_function and not has_initializers:  # of a type behind ->
                self.at = self.after_angles(self.at)
                continue
            if self.piece() not in PAIRS:
                self.at += 1
                continue
            brace = self.piece() == "{"
            self.at = self.after_group(self.at)
            if brace and is_function and self.piece() not in (",", "{", ";", "("):
                return True
        self.at += 1
        return is_function and self.pieces[self.at - 2] in ("}", "default", "delete")

    def is_constructor(self, begin, name_at):
        """Whether what is declared without a type is one, outside of its class, or is a destructor or operator."""
        name = self.pieces[name_at]
        return name in ("operator", "~") or self.pieces[max(begin, name_at - 2):name_at] == [name, "::"]

    def refuse_variable(self, begin, name_at, end_of_name, is_function, has_body, member):
        """Unless it is a constant. Foo x(1); is taken for a function, unless it has to be a variable."""
        head = self.pieces[begin:name_at]
        words = set(head)
        if member:
            is_variable = not is_function and words >= {"static", "inline"}
        elif is_function and not has_body:
            is_variable = (bool(words & {"static", "inline"}) or head[-1:] == ["::"]
                           or head[:1] == ["const"] and not words & {"&", "*"})
        else:
            is_variable = not is_function
        if is_function and not member and not self.is_constructor(begin, name_at):
            type_ = "".join(f"{word} " for word in head if word not in NO_PART_OF_A_TYPE)
            is_variable = is_variable or re.fullmatch(r"(\w+ :: )*", type_)  # Foo (x);
        is_constant = "constexpr" in words or "const" in words and words <= OF_A_CONSTANT and all(
            NUMBER.fullmatch(piece) or piece in OF_A_VALUE for piece in self.pieces[end_of_name:self.at])
        if is_variable and not is_constant:
            self.refuse("has a variable, which would be made before the tests begin: a header holds constants "
                        "(constexpr) alone; declare it in a class as static, and define it in the .cpp file", begin)
