"""Looks at the text of a student's files for what leaves no trace in the compiled code: assembly could
put any file of the machine into it, and a header that looks different to its own .cpp file and to the
tests could change the tests."""

import re

# What a compiler reads as one token, so that no comment hides code and no code hides as a comment. Raw
# strings are refused before.
TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
    |(?:u8|[uUL])?'(?:\\.|[^'\\\n])*'
    |\.?\d(?:'?[\w.])*
    |(?P<word>[^\W\d]\w*)
    |(?P<pastes>\#\#|%:%:)
    |(?P<directive>(?:(?<=\n)|\A)[^\S\n]*(?:\#|%:)(?P<what>(?:\\.|[^\n])*))""", re.DOTALL | re.VERBOSE)
RAW_STRING = re.compile(r"""\b(?:u8|[uUL])?R\"""")
ASSEMBLY = {"asm", "__asm", "__asm__", "_Pragma", "__pragma"}
# Attributes that put bytes among the instructions, or give a function another name.
LINKER = re.compile(r"(__)?(section|ifunc|weakref|alias|constructor|destructor)(__)?")
IN_EVERY_FILE = {"include", "pragma once", "pragma GCC", "pragma clang"}
IN_SOURCES = {"define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "warning"}


def wrong_include(text, is_header):
    """Where a file lies is for objects.py to judge; here, that its name means the same to all who look."""
    named = re.match(r"""\s*include\s*[<"]([^>"]+)[>"]""", re.sub(r"/\*.*?\*/", " ", text))
    if not named:
        return "has #include of what is no name of a file"
    if named[1].startswith("/") or re.search(r"(^|/)(proc|dev)/", named[1]):
        return f"has #include of {named[1]}: name the header as it lies in an include folder"
    if is_header and named[1].endswith(".cpp"):
        return f"has #include of {named[1]} in a header: the tests would be compiled over it"
    return ""


def wrong_directive(text, is_header):
    """`text` of a directive, after its #."""
    words = re.sub(r"/\*.*?\*/|//.*", " ", text).split()
    name = " ".join(words[:2]) if words[:1] == ["pragma"] else re.match(r"\w*", (words or [""])[0])[0]
    if name in IN_EVERY_FILE or not words:
        if name in ("pragma GCC", "pragma clang") and words[2:3] != ["diagnostic"]:
            return f"has #{name} {' '.join(words[2:3])}: only diagnostics may be set"
        return wrong_include(text, is_header) if name == "include" else ""
    if name not in IN_SOURCES:
        return f"has #{name or text.strip()[:20]}, which no solution needs"
    if is_header:
        return f"has #{name} in a header: what a header says must be the same everywhere; use #pragma once"
    return ""


def wrong(content, is_header):
    """(line, why) of the first thing that is refused in the file, or None. `content`: its bytes."""
    text = content.decode(errors="replace").replace("\r\n", "\n")
    if "??" in text and re.search(r"\?\?[=/'()!<>-]", text):
        return 1, "has a trigraph"
    spliced = re.sub(r"\\[^\S\n]*\n", "", text)
    if RAW_STRING.search(spliced):
        return 1 + spliced[:RAW_STRING.search(spliced).start()].count("\n"), "has a raw string"
    has_attributes = re.search(r"__attribute|\bgnu\b", spliced)
    for token in TOKENS.finditer(spliced):
        line = 1 + spliced[:token.start()].count("\n")
        if token["word"] in ASSEMBLY:
            return line, f"uses {token['word']}: a solution is written in C++ alone"
        if token["word"] and re.search(r"CAT_?\d*$|CONCAT|PASTE", token["word"]):
            return line, f"uses {token['word']}: it could make any word"
        if token["word"] and has_attributes and LINKER.fullmatch(token["word"]):
            return line, f"uses the word {token['word']} beside attributes: no solution needs that one"
        if token["pastes"]:
            return line, "pastes tokens (##): they could make any word"
        if token["directive"]:
            why = wrong_directive(token["what"], is_header)
            # A directive is no place to hide what is refused elsewhere.
            if not why and (found := re.search(r"\b(asm|__asm|__asm__|_Pragma)\b|##|%:%:", token["what"])):
                why = f"uses {found[0]} in a directive"
            if why:
                return line, why
    return None


def wrong_in(files, names):
    """Why these of the files are not compiled, as one line; empty if nothing is wrong."""
    for name in names:
        if found := wrong(files[name], name.endswith(".h")):
            return f"tasks/{name}:{found[0]} {found[1]}"
    return ""
