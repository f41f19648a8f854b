#!/usr/bin/env python3
"""Writes trainer/tokenizer/unicode_tables.cpp: the facts about Unicode that a tokenizer needs.

Needs the package unicodedata2 in the version 16.0.0, which has the Unicode version of the package
tokenizers 0.23. (Python's own unicodedata has the Unicode version of its Python.)
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "trainer/tokenizer/unicode_tables.cpp"
VERSION = "16.0.0"
POINTS = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
HANGUL = range(0xAC00, 0xD7A4)
SPACES = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F,
          0x205F, 0x3000]
# Code points that count as part of a word though they are neither letters, numbers nor marks:
# circled and squared letters, which have the property Other_Alphabetic, and the two joiners, which
# have the property Join_Control.
CIRCLED = [*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A),
           *range(0x1F170, 0x1F18A), 0x200C, 0x200D]


def ranges(codes):
    """Returns the ranges of consecutive numbers among `codes`, as pairs [first, last]."""
    found = []
    for code in sorted(codes):
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def packed(items):
    """Returns the items, each with a comma after it, in lines of at most 100 columns."""
    lines = [" "]
    for item in items:
        if len(lines[-1]) + len(item) > 98:
            lines.append(" ")
        lines[-1] += f" {item},"
    return "\n".join(lines)


def braces(*numbers):
    return "{" + ", ".join(f"{number:#x}" for number in numbers) + "}"


def table(kind, name, items):
    own = f"k{name}Table"
    return (f"constexpr {kind} {own}[] = {{\n{packed(items)}\n}};\n",
            f"const std::span<const {kind}> k{name}{{{own}}};\n")


def combining_classes(unicode):
    found = []
    for code in POINTS:
        value = unicode.combining(chr(code))
        if found and found[-1][1] == code - 1 and found[-1][2] == value:
            found[-1][1] = code
        elif value:
            found.append([code, code, value])
    return [f"{{{braces(first, last)}, {value}}}" for first, last, value in found]


def decompositions(unicode):
    """Returns two lists: the canonical decompositions of code points, and the code points that
    decompose into a pair which NFC does not compose again."""
    found, kept = [], []
    for code in POINTS:
        text = unicode.decomposition(chr(code))
        if not text or text.startswith("<") or code in HANGUL:
            continue
        parts = [int(part, 16) for part in text.split()]
        if len(parts) == 2 and unicode.normalize("NFC", chr(code)) != chr(code):
            kept.append(f"{code:#x}")
        found.append(braces(code, *parts, *[0] * (2 - len(parts))))
    return found, kept


def source(unicode):
    def of(test):
        return [braces(*pair) for pair in ranges(code for code in POINTS if test(code))]

    def category(code):
        return unicode.category(chr(code))

    pairs, kept = decompositions(unicode)
    tables = [
        table("Range", "Letters", of(lambda code: category(code)[0] == "L")),
        table("Range", "Numbers", of(lambda code: category(code)[0] == "N")),
        table("Range", "Spaces", of(lambda code: code in SPACES)),
        table("Range", "InWords", of(lambda code: code in CIRCLED or category(code)[0] == "M"
                                     or category(code) in ("Nd", "Nl", "Pc"))),
        table("CombiningClass", "CombiningClasses", combining_classes(unicode)),
        table("Decomposition", "Decompositions", pairs),
        table("char32_t", "NotComposed", kept),
    ]
    return (
        f"// unicode_tables.py has written this file, from Unicode {VERSION}.\n"
        "// clang-format off\n#include <tokenizer/unicode_tables.h>\n\n"
        "namespace fsdp::unicode {\nnamespace {\n\n"
        + "\n".join(entries for entries, _ in tables)
        + "\n}  // namespace\n\n"
        + "".join(name for _, name in tables)
        + "\n}  // namespace fsdp::unicode\n"
    )


def main():
    try:
        import unicodedata2 as unicode
    except ImportError:
        sys.exit(f"unicode_tables.py: needs the package unicodedata2=={VERSION}")
    if unicode.unidata_version != VERSION:
        sys.exit(f"unicode_tables.py: unicodedata2 has Unicode {unicode.unidata_version}, not "
                 f"{VERSION}")
    OUT.write_text(source(unicode))


if __name__ == "__main__":
    main()
