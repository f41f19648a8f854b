"""Looks at the text of a student's files for what leaves no trace in the compiled code: assembly could
put any file of the machine into it, and a header that looks different to its own .cpp file and to the
tests could change the tests. It reads a text as a compiler does, and refuses what compilers read in
different ways."""

import bisect
import itertools
import re

# A comment does not end a line, and no comment hides code and no code hides as a comment. C++20 has no
# trigraphs. Raw strings and what is `odd` are refused: a quote without its end, or characters with which a number goes on for the
# compiler and ends here.
TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<newline>\n)
    |(?P<text>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<odd>["'\\$@`]|/\*|\.?\d(?:[eEpP][+-]|'?[\w.])*[^\x00-\x7f])
    |(?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
    |(?P<word>[^\W\d]\w*)
    |(?P<pastes>\#\#|%:%:)
    |(?P<hash>\#|%:)
    |(?P<other>\S)""", re.ASCII | re.DOTALL | re.VERBOSE)
SPLICE = re.compile(r"\\[ \t\f\v]*\n")  # which joins two lines
RAW_STRING = re.compile(r"""\b(?:u8|[uUL])?R\"""", re.ASCII)
CONTROL = re.compile(r"[^\t\n\v\f\x20-\x7e\xa0-\uffff\U00010000-\U0010ffff]")
ASSEMBLY = {"asm", "__asm", "__asm__", "_Pragma", "__pragma"}
# Names of the compiler and of the system's headers, whose macros could make any word. Of these a solution
# may use what the compiler itself defines.
RESERVED = re.compile(r"_[_A-Z]\w*", re.ASCII)
COMPILERS = re.compile(r"__builtin_\w+|__cplusplus|__cpp_\w+|__int128|__restrict|__attribute|__m\d+\w*|__\w+__|"
                       r"_OPENMP|_DEBUG|_WIN32|_MSC_VER")
MAKES_WORDS = re.compile(r"CAT_?\d*$|CONCAT|PASTE|JOIN|TORCH_SDT")
# Attributes that put bytes among the instructions, give a function another name, or write whatever follows
# into the assembly: the name of a section may go on over lines.
LINKER = re.compile(r"(__)?(section|ifunc|weakref|alias|constructor|destructor|symver|target_clones|init_priority)(__)?")
ATTRIBUTES = {"gnu", "__gnu__", "clang", "_Clang", "__attribute", "__attribute__"}  # with which one names them
# From which a header could tell its own .cpp file from the tests.
WHERE = {"__BASE_FILE__", "__INCLUDE_LEVEL__", "__COUNTER__"}
STREAMS = {"stdout", "stderr"}
# As a macro, they would open what a class keeps to itself.
KEYWORDS = set("""alignas alignof auto bool break case catch char class concept const consteval constexpr constinit
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false final
    float for friend goto if import inline int long module mutable namespace new noexcept nullptr operator override
    private protected public register reinterpret_cast requires return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned
    using virtual void volatile wchar_t while""".split())
IN_EVERY_FILE = {"include", "pragma once", "pragma GCC", "pragma clang", "pragma region", "pragma endregion",
                 "pragma mark"}
IN_SOURCES = {"define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "warning"}
GUARD = re.compile(r"[A-Z][A-Z0-9_]*_H(PP)?_?")  # the macro of an include guard


def wrong_include(words, is_header):
    """Where a file lies is for objects.py to judge; here, that its name means the same to all who look."""
    named = re.match(r"""[<"]([^>"]+)[>"]""", "".join(words))
    if not named:
        return "has #include of what is no name of a file"
    if named[1].startswith("/") or re.search(r"(^|/)(proc|dev)/", named[1]):
        return f"has #include of {named[1]}: name the header as it lies in an include folder"
    if ".." in named[1].split("/"):
        return f"has #include of {named[1]}: name a header of the course without a path, as <meta_init.h>"
    if is_header and named[1].endswith(".cpp"):
        return f"has #include of {named[1]} in a header: the tests would be compiled over it"
    return ""


def wrong_directive(words, is_header):
    """`words` of a directive, after its #."""
    name = " ".join(words[:2]) if words[:1] == ["pragma"] else "".join(words[:1])
    if name in IN_EVERY_FILE or not words:
        if name in ("pragma GCC", "pragma clang") and words[2:3] != ["diagnostic"]:
            return f"has #{name} {' '.join(words[2:3])}: only diagnostics may be set"
        return wrong_include(words[1:], is_header) if name == "include" else ""
    if name not in IN_SOURCES:
        return f"has #{name[:40]}, which no solution needs"
    if is_header:
        return (f"has #{name} in a header, which must say the same everywhere: put it into the .cpp file (in place of "
                "an include guard, use #pragma once)")
    if name == "define" and words[1:2] and words[1] in KEYWORDS:
        return f"has #define {words[1]}: a word of C++ keeps its meaning"
    return ""


def wrong_token(token, has_attributes):
    word = token["word"]
    if token["odd"]:
        return f"has {token['odd'][:20]} where it is no part of a text: compilers read it in different ways"
    if token["pastes"]:
        return ("pastes tokens (##), which could put any word together, also a forbidden one: write them out; for a "
                "comma, write __VA_OPT__(,)")
    if not word:
        return ""
    if word in ASSEMBLY:
        return f"uses {word}: a solution is written in C++ alone"
    if word in ("_fileno", "FILE"):
        return (f"uses {word}: an own stream would write into another file, as that of what a rank reports; print with "
                "printf(), or name stdout or stderr in each call")
    if word in WHERE:
        return f"uses {word}: a header says the same to all that include it"
    if MAKES_WORDS.search(word):
        return f"uses {word}: it could make any word"
    if LINKER.fullmatch(word) and (has_attributes or word.startswith("__")):
        return f"uses the word {word} beside attributes: no solution needs that one"
    if RESERVED.fullmatch(word) and not COMPILERS.fullmatch(word):
        return f"uses {word}: names that begin so belong to the compiler and to the system"
    return ""


def lines(text):
    """The tokens of each line but comments, up to the first that is odd: it is refused, and each comment
    without an end would be looked for through all of the text."""
    line = []
    for token in TOKENS.finditer(text):
        if token["newline"]:
            yield line
            line = []
        elif not token["comment"]:
            line.append(token)
        if token["odd"]:
            break
    yield line


def wrong_stream(tokens):
    """(where, why) of the first of stdout and stderr that is more than the argument of a call, or None. Whoever
    opens the object could have it write into another file."""
    for i, token in enumerate(tokens):
        if token["word"] in STREAMS:
            around = " ".join(near[0] for near in tokens[max(i - 2, 0):i + 3])
            if not re.search(rf"(\w \(|,) {token[0]} (,|\)(?! [\[.-]))", around):
                return token.start(), (f"uses {token[0]} as something else than the argument of a call: write "
                                       f"{token[0]} itself in each call")
    return None


def without_guard(lines, name):
    """Of a header called so, its lines but the directives of an include guard that is named after it and
    stands around all of it: so it says the same everywhere. What its macro hides elsewhere, wrong_line() finds."""
    words = [[token[0] for token in line] for line in lines]
    code = [i for i, line in enumerate(words) if line and line != ["#", "pragma", "once"]]
    stem = "_?".join(name.rpartition("/")[2].removesuffix(".h").upper().split("_"))
    if len(code) < 3 or words[code[-1]] != ["#", "endif"]:
        return lines
    macro = words[code[0]][-1]
    opens = [words[code[0]], words[code[1]]] == [["#", "ifndef", macro], ["#", "define", macro]]
    if opens and GUARD.fullmatch(macro) and re.fullmatch(rf"(\w+_)?{stem}_H(PP)?_?", macro):
        for i in (code[0], code[1], code[-1]):
            lines[i] = []
    return lines


def wrong_line(line, is_header, has_attributes):
    """(where, why) of the first thing that is refused, or None."""
    if line and line[0]["hash"]:
        words = [token[0] for token in line[1:]]
        if why := wrong_directive(words, is_header):
            return line[0].start(), why
        if words[:1] == ["include"]:
            line = [token for token in line if token["odd"]]
    for before, token in zip([None, *line], line):
        if token["pastes"] and before and before[0] == ",":  # , ## __VA_ARGS__: no word begins with a comma
            continue
        if why := wrong_token(token, has_attributes):
            return token.start(), why
        if is_header and GUARD.fullmatch(token["word"] or ""):
            return token.start(), f"uses {token['word']}, which may be the macro of an include guard, and empty"
    return None


def wrong(name, content):
    """(line, why) of the first thing that is refused in the file, or None. `content`: its bytes."""
    is_header = name.endswith(".h")
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if found := CONTROL.search(text):
        return 1 + text[:found.start()].count("\n"), f"has the control character {ascii(found[0])}"
    parts = SPLICE.split(text)
    splices = list(itertools.accumulate(map(len, parts[:-1])))  # where a line was joined to the next
    spliced = "".join(parts)

    def number(at):
        return 1 + spliced[:at].count("\n") + bisect.bisect(splices, at)

    if found := RAW_STRING.search(spliced):
        return number(found.start()), "has a raw string: write an ordinary one, with \\n and \\\""
    read = list(lines(spliced))
    if is_header:
        read = without_guard(read, name)
    tokens = [token for line in read for token in line]
    has_attributes = any(token["word"] in ATTRIBUTES for token in tokens)
    refused = (wrong_line(line, is_header, has_attributes) for line in read)
    if found := next(filter(None, refused), None) or wrong_stream(tokens):
        at, why = found
        return number(at), why
    return None


def wrong_in(files, names):
    """Why these of the files are not compiled, as one line; empty if nothing is wrong."""
    for name in names:
        if found := wrong(name, files[name]):
            return f"tasks/{name}:{found[0]} {found[1]}"
    return ""
