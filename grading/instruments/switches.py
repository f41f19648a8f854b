"""Mutants of a C++ file: small changes of one statement each, all compiled together behind switches.

mutate() writes the file once more, with every statement in all its forms; FSDP_MUTANT chooses the one
that runs. It reads clang-format's output, and no C++ beyond what the solutions use.
"""

import dataclasses
import hashlib
import re

HEADER = "mutant.h"
HELPERS = """#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
namespace fsdp {
inline int mutant() {
  static const int number = std::getenv("FSDP_MUTANT") ? std::atoi(std::getenv("FSDP_MUTANT")) : 0;
  return number;
}
template <class T>  // a pointer that owns nothing in place of one that does
std::shared_ptr<T> unowned(int number, std::shared_ptr<T> owner) {
  return mutant() == number ? std::shared_ptr<T>(std::shared_ptr<T>(), owner.get()) : owner;
}
template <class T>
struct Held {
  std::weak_ptr<T> weak;
  std::shared_ptr<T> strong;
  std::shared_ptr<T> lock() const { return weak.lock(); }
};
template <class T>  // a pointer that owns in place of a weak one
Held<T> held(int number, std::weak_ptr<T> weak) {
  return {weak, mutant() == number ? weak.lock() : nullptr};
}
}  // namespace fsdp
"""
MARK = "//@"  # at the end of a line that belongs to one mutant: its number

OPERATORS = {"&&": "||", "||": "&&", "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
             "+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "|=": "="}
CALLS = {"front": "back", "back": "front", "min": "max", "max": "min", "any_of": "all_of", "none_of": "any_of",
         "rbegin": "begin", "rend": "end", "rfind": "find", "find": "find_if_not",
         "unshard": "unshard_async", "unshard_async": "unshard", "merge": "swap"}
ENUMS = {"UnitState": ("sharded", "gathering", "unsharded"),
         "MemoryClass": ("shards", "gathered", "gradients", "sharded_gradients")}
VIEWS = "slice|narrow|view|detach|view_of_storage|variable_data|on_storage|moved|shard|flatten|sharded_gradient"
LAMBDA = re.compile(r"\](\s*\((?:[^()]|\([^()]*\))*\))?(\s*mutable)?(\s*->\s*[\w:<>]+)?\s*\{")
DECLARATION = re.compile(r"(?:(?:static|thread_local|const) )*([\w:]+(?:<[^;=()]*>)?)(?: |[&*] ?)(\w+|\[[\w, ]+\])"
                         r"(?= =|;|\(|\{)")
KEYWORDS = {"return", "throw", "delete", "new", "using", "else", "if", "for", "while", "catch"}


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


def masked(text):
    """As long as `text`, with blanks for comments and preprocessor lines and "_" in string literals."""

    def hide(match):
        found = match.group()
        if found[0] in "\"'":
            return found[0] + "_" * (len(found) - 2) + found[0]
        return re.sub(r"[^\n]", " ", found)

    return re.sub(r'//[^\n]*|/\*.*?\*/|(?m:^#[^\n]*)|"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\])+\'', hide, text,
                  flags=re.S)


class Switches:
    def __init__(self, file, text, number, dropped, members):
        self.file, self.text, self.mask, self.dropped = file, text, masked(text), dropped
        quiet = re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
        self.plain = quiet  # without comments
        self.mutants, self.number, self.seen = [], number, {}
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.function, self.names, self.statement_at, self.bare = "", list(members), 0, False

    # Reading.

    def match(self, at):
        """Where the bracket at `at` closes."""
        depth = 0
        for i in range(at, len(self.mask)):
            depth += (self.mask[i] in "([{") - (self.mask[i] in ")]}")
            if depth == 0:
                return i
        raise ValueError(f"{self.file}: no bracket closes that at {at}")

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
        word = re.compile(r"\w*").match(self.mask, at).group()
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

    # Writing.

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
        self.mutants.append(Mutant(self.number, self.file, line, self.function, old, new, key, self.statement_at))
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

    # What is changed.

    def edits(self, begin, end):
        """(begin, end, new text) of the changes of an expression, outside its lambdas."""
        inside = [(b, e) for b, _, e, _ in self.lambdas(begin, end)]
        for b, e, new in self.all_edits(begin, end):
            if not any(b <= i_end and e > i_begin and not (b <= i_begin and e > i_end) for i_begin, i_end in inside):
                yield b, e, new

    def find(self, pattern, begin, end):
        return re.compile(pattern).finditer(self.mask, begin, end)

    def all_edits(self, begin, end):
        for hit in self.find(r"(?<=\s)(&&|\|\||[=!<>]=|[<>+*/-]|\+=|\|=)(?=\s)", begin, end):
            yield *hit.span(), OPERATORS[hit.group()]
        for word in (r"\s&&\s", r"\s\|\|\s"):
            yield from self.less(begin, end, word)
        for hit in self.find(r"\?\s", begin, end):
            condition = self.operand(begin, hit.start())
            yield condition, hit.start(), " true "
            yield condition, hit.start(), " false "
        for hit in self.find(r"!(?!=)", begin, end):
            yield *hit.span(), ""
        for hit in self.find(r"(?<![\w.])\d+(?![\w.])", begin, end):
            yield *hit.span(), str(int(hit.group()) + 1)
            if int(hit.group()) > 0:
                yield *hit.span(), str(int(hit.group()) - 1)
        for hit in self.find(r"\b(true|false)\b|\d+e-\d+|\d+\.\d+", begin, end):
            yield *hit.span(), {"true": "false", "false": "true"}.get(hit.group(), "0.5")
        for hit in self.find(r"(?<=[\w)\]])\[", begin, end):
            close = self.match(hit.start())
            yield hit.end(), close, "0"
            yield hit.end(), close, f"std::max<int64_t>(({self.plain[hit.end():close]}) - 1, 0)"
        for hit in self.find(r"\b(\w+)::(\w+)\b", begin, end):
            if hit.group(2) in (names := ENUMS.get(hit.group(1), ())):
                yield *hit.span(2), names[(names.index(hit.group(2)) + 1) % len(names)]
        for hit in self.find(r"\boptions\.", begin, end):
            yield *hit.span(), "std::remove_cvref_t<decltype(options)>{}."
        for hit in self.find(r"\bcomm_?->empty\(", begin, end):
            yield *hit.span(), "at::empty("
        for hit in self.find(r"(\w+_) = [^;]*->\w+_into\(", begin, end):
            yield end, end, f"; {hit.group(1)}.wait()"
        for hit in self.find(r"\b((?:\w+(?:\.|->))*\w+)\.push_back\(", begin, end):
            yield *hit.span(), f"{hit.group(1)}.insert({hit.group(1)}.begin(), "
        yield from self.other_calls(begin, end)
        yield from self.other_names(begin, end)

    def operand(self, begin, end):
        """Where the operand that ends at `end` begins."""
        depth = 0
        for i in range(end - 1, begin, -1):
            depth += (self.mask[i] in ")]}") - (self.mask[i] in "([{")
            if depth < 0 or depth == 0 and (self.mask[i] == "," or self.mask[i - 1:i + 2] == " = "):
                return i + 1
        return begin

    def less(self, begin, end, word):
        """Leaves out each operand of `word`, at the top and in round brackets."""
        for b, e in [(begin, end)] + [(h.end(), self.match(h.start())) for h in self.find(r"\(", begin, end)]:
            parts = self.parts(b, e, word)
            for i, part in enumerate(parts if len(parts) > 1 else []):
                yield (part[0], parts[i + 1][0], "") if i + 1 < len(parts) else (parts[i - 1][1], part[1], "")

    def other_calls(self, begin, end):
        for hit in self.find(r"\b(\w+)\(", begin, end):
            b, open_, close = hit.start(), hit.end() - 1, self.match(hit.end() - 1)
            name, before = hit.group(1), self.mask[max(begin, b - 2):b]
            if name in KEYWORDS:
                continue
            if name in CALLS:
                yield *hit.span(1), CALLS[name]
            if re.fullmatch(VIEWS, name):
                yield close + 1, close + 1, ".clone()"
            arguments = [p for p in self.parts(open_ + 1, close, r",\s*") if p[0] < p[1]]
            if self.bare and not self.mask[close + 1:end].strip():
                pass  # the whole statement
            elif before.endswith("."):
                yield b - 1, close + 1, ""
            elif arguments and not before.endswith(("->", "::")):
                yield b, close + 1, self.plain[slice(*arguments[0])]
            if len(arguments) > 1:
                yield arguments[-2][1], close, ""
                if name not in ("min", "max"):
                    one, two = (self.plain[slice(*a)] for a in arguments[:2])
                    yield arguments[0][0], arguments[1][1], f"{two}, {one}"

    def other_names(self, begin, end):
        """Another variable of the same type, the next one that is known."""
        kinds = {}
        for kind, name in self.names:
            if kind != "auto" and name not in kinds.setdefault(kind, []):
                kinds[kind].append(name)
        for hit in self.find(r"(?<![\w.:])(?<!->)\w+\b(?!\(|::)", begin, end):
            for names in kinds.values():
                if hit.group() in names and len(names) > 1:
                    yield *hit.span(), names[(names.index(hit.group()) + 1) % len(names)]

    # The forms of each statement.

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

    def one_line(self, begin, end):
        return " ".join(self.plain[begin:end].split())

    def is_expression(self, begin, end):
        word = re.compile(r"\w*").match(self.mask, begin).group()
        return not (word in KEYWORDS | {"try"} or self.mask[begin] == "{"
                    or DECLARATION.match(self.mask, begin, end))

    def moved_up(self, begin, end):
        if not self.is_expression(begin, end):
            return None
        self.statement_at = begin
        return self.add(begin, begin, "", (self.first_line(begin, end), "moved up"))

    def statement(self, begin, end):
        self.statement_at = begin
        word = re.compile(r"\w*").match(self.mask, begin).group()
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
