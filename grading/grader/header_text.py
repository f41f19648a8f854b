"""Looks at what the headers of a submission declare. The tests are compiled over them, so a name that the
tests use could mean something of the student's there, and a variable would run code before the tests."""

import functools
import re

from grader import course
from grader.course import ROOT
from grader.declarations import Reader
from grader.pieces import WORD, Refusal, code_of

ELSEWHERE = "move it to the class or to the .cpp file, or give it another name"
INSTEAD = {
    "operator": "make it a friend in a class that you add",
    "std": "in place of specializing a template of std, give a container a class that hashes or compares",
}
TENSORS = {f"using {name}at :: Tensor" for name in ("", "Tensor = ")} | {
    f"using {name}torch :: Tensor" for name in ("", "Tensor = ")}  # which mean what the tests mean


@functools.cache
def words_of_tests():
    """What the tests and the rooms of common/ call something: in code, not in comments."""
    words = set()
    for folder in ("tests", "common"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in (".h", ".cpp"):
                words.update(WORD.findall(code_of(path.read_text())))
    return words


@functools.cache
def words_of_others():
    return words_of_tests() | words_of_headers()


@functools.cache
def given():
    """Path in tasks/ of a header -> what it declares as students get it."""
    return {name: Reader(code_of(content.decode())).read()
            for name, content in course.blank().items() if name.endswith(".h")}


@functools.cache
def words_of_headers():
    return frozenset().union(*(header.words for header in given().values()))


@functools.cache
def inner_words():
    """What types in classes of the course are called, and nothing outside of them."""
    inner = frozenset().union(*(header.inner for header in given().values()))
    return inner.difference(*(header.names for header in given().values()))


@functools.cache
def words_of_rooms():
    """Of the headers of common/ that solutions may include."""
    paths = (path for path in (ROOT / "common").rglob("*.h") if "testing" not in path.parts)
    return frozenset(word for path in paths for word in WORD.findall(code_of(path.read_text())))


@functools.cache
def classes():
    """What classes of namespace fsdp the course has, also in common/."""
    found = set().union(*(header.classes for header in given().values()))
    for path in sorted((ROOT / "common").rglob("*.h")):
        code = code_of(path.read_text())
        if "testing" not in path.parts and set(re.findall(r"\bnamespace\b.*", code)) == {"namespace fsdp {"}:
            found.update(re.findall(r"(?m)^(?:class|struct) (\w+)(?: final)? *[:{]", code))
    return found


def changed(header, before):
    """(index, why) of each thing of the course's header that is not as it was."""
    for name, ways in before.seen.items():
        for what, at in header.seen.get(name, {}).items():
            if what not in ways:
                yield at, f"has another `{name}` than the course's header: `{what}`"
        for what in ways:
            if what not in header.seen.get(name, {}) and name not in before.forward:
                class_ = header.seen.get(name.rpartition("::")[0], {})
                as_it_is = f" as the course's header has it: `{what}`" if what else ", which the course's header has"
                yield min(class_.values(), default=0), f"lacks `{name}`{as_it_is}"
    yield from changed_bases(header, before)
    for name, ways in header.seen.items():
        class_, _, sign = name.rpartition("::")
        if class_ in before.seen and name not in before.seen and sign.startswith("operator"):
            if sign != "operator=":
                yield min(ways.values()), f"gives {class_} an {sign}, which the tests would use"


def changed_bases(header, before):
    """What is declared for a base, as a friend, the tests would find with the class."""
    for name, (bases, at) in header.bases.items():
        if name in before.bases:
            own = {f"std :: enable_shared_from_this < {name} >"}
            access = r"\b(public|protected|private|virtual) "
            now, usual = ({re.sub(access, "", base).strip() for base in text.split(",")}
                          for text in (bases, before.bases[name][0]))
            if more := now - usual - own - {""}:
                yield at, f"gives {name} the base {min(more)}, which the course's header does not"


def refused(header, before):
    """(index, why) of everything that is refused in a header. `before`: as students get it."""
    known = {*before.names, *before.forward}
    for name, at in header.names.items():
        if name == "Tensor" and TENSORS.issuperset(header.seen.get(name, {"": 0})):
            continue
        if name not in known and name in words_of_others():
            instead = INSTEAD.get(name, ELSEWHERE)
            yield at, f"declares {name}, which means something else in the tests, in common/ or in tasks/: {instead}"
    for name, at in header.forward.items():
        if name not in known and name in words_of_others() and name not in classes():
            yield at, f"declares {name}, which means something else in the tests: {ELSEWHERE}"
    for name, at in header.inner.items():
        is_free = name in inner_words() and name not in before.words
        if name not in before.inner and name in words_of_headers() and not is_free:
            yield at, f"declares {name} in a class, where the course's headers mean another {name}"
    yield from changed(header, before)


@functools.cache
def measures():
    """The words with which one says what changes a measurement: a test may use it, and so the look at what a
    header adds to the compiled tests does not see it there. A method is called without the name of its class."""
    names = [name.split("::")[-2:] for name in course.rubric()["forbidden"] if name.startswith("fsdp::")]
    names += [[word, ""] for word in course.rubric()["allowed"]["never"]]
    return [[scope] if not name else [name] if scope == "fsdp" or scope[0].isupper() else [scope, name]
            for scope, name in names]


def measured_with(code, blank):
    """(line, why) of the first such name in the code of a header, or None. `blank`: as students get it."""
    words, given_words = set(WORD.findall(code)), set(WORD.findall(blank))
    for name in measures():
        if words.issuperset(name) and not given_words.issuperset(name):
            line = 1 + code[:re.search(rf"\b{name[0]}\b", code).start()].count("\n")
            return line, f"uses {'::'.join(name)} in a header, which is for the tests alone"
    return None


def wrong(path, content):
    """(line, why) of the first thing that is refused in a header, or None. `path`: in tasks/."""
    code = code_of(content.decode("utf-8-sig", "replace"))
    if found := re.search(r"<%|%>|<:(?!:)|:>|\\", code):
        return code.count("\n", 0, found.start()) + 1, f"has {found[0]}, which is hard to read"
    reader = Reader(code)
    try:
        reader.read()
        found = next(refused(reader.header, given()[path]), None)
    except Refusal as refusal:
        found = refusal.at, str(refusal)
    except RecursionError:
        found = 0, "has too many braces in one another"
    if not found:
        return measured_with(code, code_of(course.blank()[path].decode()))
    at, why = found
    return (reader.lines[at] if at < len(reader.lines) else 1), why


def wrong_in(files, names):
    """Why these of the files are not compiled, as one line; empty if nothing is wrong."""
    for name in names:
        if name.endswith(".h") and (found := wrong(name, files[name])):
            return f"tasks/{name}:{found[0]} {found[1]}"
    return ""
