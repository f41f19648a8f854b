"""The changes that make a mutant of an expression."""

import re

from mutation.source import KEYWORDS, Source

OPERATORS = {"&&": "||", "||": "&&", "==": "!=", "!=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
             "+": "-", "-": "+", "*": "/", "/": "*", "+=": "-=", "|=": "="}
CALLS = {"front": "back", "back": "front", "min": "max", "max": "min", "any_of": "all_of", "none_of": "any_of",
         "rbegin": "begin", "rend": "end", "rfind": "find", "find": "find_if_not",
         "unshard": "unshard_async", "unshard_async": "unshard", "merge": "swap"}
ENUMS = {"UnitState": ("sharded", "gathering", "unsharded"),
         "MemoryClass": ("shards", "gathered", "gradients", "sharded_gradients")}
VIEWS = "slice|narrow|view|detach|view_of_storage|variable_data|on_storage|moved|shard|flatten|sharded_gradient"
HAS_NO_OTHER = {"size", "end", "begin", "lock", "numel"}  # without the call nothing compiles


class Changes(Source):
    """What becomes of an expression: (begin, end, new text) of each change."""

    def __init__(self, name, text, members):
        super().__init__(name, text)
        self.names = list(members)  # (type, name) of the variables known here
        self.bare = False  # the statement uses no value of its outermost call

    def edits(self, begin, end):
        """Those that are not inside a lambda."""
        inside = [(b, e) for b, _, e, _ in self.lambdas(begin, end)]
        for b, e, new in self.all_edits(begin, end):
            if not any(b <= i_end and e > i_begin and not (b <= i_begin and e > i_end) for i_begin, i_end in inside):
                yield b, e, new

    def all_edits(self, begin, end):
        yield from self.conditions(begin, end)
        yield from self.values(begin, end)
        yield from self.memory(begin, end)
        yield from self.other_calls(begin, end)
        yield from self.other_names(begin, end)

    def conditions(self, begin, end):
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

    def values(self, begin, end):
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
        for hit in self.find(r"\b((?:\w+(?:\.|->))*\w+)\.push_back\(", begin, end):
            yield *hit.span(), f"{hit.group(1)}.insert({hit.group(1)}.begin(), "

    def memory(self, begin, end):
        for hit in self.find(rf"\b(?:{VIEWS})\(", begin, end):
            close = self.match(hit.end() - 1)
            yield close + 1, close + 1, ".clone()"
        for hit in self.find(r"\bcomm_?->empty\(", begin, end):
            yield *hit.span(), "at::empty("
        for hit in self.find(r"(\w+_) = [^;]*->\w+_into\(", begin, end):
            yield end, end, f"; {hit.group(1)}.wait()"

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
            if name in KEYWORDS | HAS_NO_OTHER:
                continue
            if name in CALLS:
                yield *hit.span(1), CALLS[name]
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

