"""Looks at what the compiler made of a student's files, before it runs: a solution includes nothing of
the reference or of the tests, defines no name that is somebody else's, and uses only what a solution
needs (grading/rubric.toml, `allowed`), and of that nothing that changes what is measured (`forbidden`)."""

import functools
import itertools
import os
import pathlib
import re
import subprocess
import tempfile

from grader import header_text, sandbox
from grader.course import BUILD, ROOT, Refused, rubric, tasks


MOST_BYTES = 4_000_000  # of an object; those of the solutions have 355 KB at most
MOST_OUTPUT = 256_000_000  # [bytes] of a tool
LONGEST_NAME = 10_000  # what is looked at of a name: its beginning
LIMITS = ("prlimit", f"--fsize={MOST_OUTPUT}", "--as=4294967296", "--cpu=120", "--core=0")


def output(*command, given=""):
    """What the tool prints. A student's object may make it print or take anything, so it has limits."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as text:
        text.write(given.encode(errors="surrogateescape"))
        text.seek(0)
        done = subprocess.run([*LIMITS, *command], stdin=text, stdout=out, stderr=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Refused(f"can't be looked at: {command[0]} fails on its object, or prints too much")
        out.seek(0)
        return out.read().decode(errors="backslashreplace")


def folder_of(target):
    return BUILD / "CMakeFiles" / f"{target}.dir"


def objects(stack, task):
    """The objects of the task's library, each with the path of its source in tasks/."""
    folder = folder_of(f"{stack}_task{task.number}")
    for path in sorted(folder.rglob("*.cpp.o")):
        name = path.relative_to(folder).as_posix().removesuffix(".o")
        source = next((source for source in task.files if name.endswith(f"/{source}")), None)
        if source:  # else it was made of what is no file of the course any more
            yield path, source


def is_strong(kind):
    return kind in "TDBRSGA"


def symbols(*arguments):
    """(name, kind) of what nm lists."""
    for line in output("nm", "-P", *map(str, arguments)).splitlines():
        words = line.split()
        if len(words) >= 2 and len(words[1]) == 1:
            yield words[0], words[1]


def libraries():
    """The shared libraries that the tests are linked to."""
    program = next((BUILD / "bin").glob("*_task*_tests"))
    listing = output("ldd", program)
    return re.findall(r"=> (\S+)", listing)


@functools.cache
def names_of_others():
    """Mangled name -> (the library that defines it, whether it does so strongly)."""
    found = {}
    for archive in sorted(BUILD.glob("libfsdp_*.a")):  # the rooms of common/
        for name, kind in symbols("-g", "--defined-only", archive):
            if not found.get(name, ("", False))[1]:
                found[name] = (f"common/{archive.stem.removeprefix('libfsdp_')}", is_strong(kind))
    for library in libraries():
        for name, kind in symbols("-D", "--defined-only", library):
            if is_strong(kind):
                found.setdefault(name.partition("@")[0], (pathlib.Path(library).name, True))
    return found


ELSEWHERE = "in a .cpp file, put it into a namespace without a name"
# What the linker has beside functions and variables.
OF_A_NAME = re.compile(r"^((construction vtable|vtable|VTT|typeinfo( name)?|guard variable|"
                       r"reference temporary #\d+|TLS (init|wrapper) function) for |"
                       r"(non-virtual|virtual|covariant return) thunk to )+")


def demangled(names):
    """Of mangled names in order: as in C++, without parameters and the type that is returned."""
    listing = "\n".join(names)
    plain, full = (output("c++filt", *how, given=listing).splitlines() for how in (("-p",), ()))
    return [OF_A_NAME.sub("", (whole if short.startswith("_Z") else short)[:LONGEST_NAME])
            for short, whole in zip(plain, full)]


def shown(name):
    return name if len(name) <= 200 else f"{name[:200]}..."


def begins_with(name, families):
    """Whether the name is one of these or lies in one of these namespaces or classes."""
    return any(name == family or re.match(rf"{re.escape(family)}(::|\W)", name) for family in families)


# What compilers make of C++, without what an attribute asks for: a section may speak to the linker.
SECTION = re.compile(r"\.(text|rodata|data|bss|tdata|tbss|init_array|fini_array|gcc_except_table|eh_frame|comment|group|"
                     r"note\.GNU-stack|note\.gnu\.property|debug_\w+|symtab(_shndx)?|strtab|shstrtab|llvm_addrsig)(\.|$)")
SECTION_TYPES = {"PROGBITS", "NOBITS", "RELA", "GROUP", "SYMTAB", "STRTAB", "NOTE", "INIT_ARRAY", "FINI_ARRAY",
                 "X86_64_UNWIND", "LLVM_ADDRSIG"}


def wrong_sections(path):
    listing = output("readelf", "--section-headers", "--wide", path)
    rows = re.findall(r"(?m)^ *\[ *([0-9]+)\] (.*)", listing)
    if not rows:
        yield "is no object whose sections can be read"
    for number, row in rows:
        words = row.split()
        name, kind = (words + ["", ""])[:2]
        if number == "0" or row.startswith(".symtab_shndx "):
            continue
        if not SECTION.match(name.removeprefix(".rela")) or kind not in SECTION_TYPES:
            yield f"has the section {name[:100]} of type {kind[:20]}, which no C++ of a solution makes"


def defined_in(path):
    """Name -> kind."""
    return dict(symbols("-g", "--defined-only", path))


@functools.cache
def names_of_tests():
    """Mangled names of what the course compiles over the headers. Inline functions among them are weak: a strong one
    of a student's would be theirs, and a weak one would let a student call theirs. Without what tasks/ declares:
    that may move to a .cpp file."""
    given = frozenset().union(*(header.names for header in header_text.given().values()))
    folders = BUILD.glob("CMakeFiles/mine_*.dir")
    found = {name for folder in folders if re.fullmatch(r"mine_(task\d_tests|strategy|train)\.dir", folder.name)
             for path in sorted(folder.rglob("*.o")) for name in defined_in(path) if name.startswith("_Z")}
    found = sorted(found.difference(names_of_others()))
    first = (re.match(r"(?:fsdp::)?(\w+)", readable) for readable in demangled(found))
    return frozenset(name for name, word in zip(found, first) if not word or word[1] not in given)


def is_of_tests_alone(readable):
    """Of what the tests define: whether it is nothing that a header of common/ may make in every object."""
    name = re.match(r"fsdp::(\w+)", readable)
    return name and name[1] not in header_text.words_of_rooms()


def wrong_symbols(path, own=frozenset()):
    """`own`: what other files of the submission define."""
    yield from wrong_sections(path)
    others = names_of_others()
    defined = defined_in(path)
    mangled = sorted(name for name in defined if name.startswith("_Z"))
    for name in sorted(set(defined).difference(mangled)):
        if name.startswith(("DW.ref.", "__clang_call_terminate")):  # the compiler's own
            continue
        if name in others or name in rubric()["allowed"]["c"] or not is_strong(defined[name]):
            yield f"defines {name}, a name of C: everybody's {name} would be this one"
    for name, readable in zip(mangled, demangled(mangled)):
        strong = is_strong(defined[name])
        whose, strongly = others.get(name, ("", False))
        if strongly or (whose and strong):
            yield f"defines {shown(readable)}, which is {whose}'s: {ELSEWHERE}"
        elif name in names_of_tests() and (strong or is_of_tests_alone(readable)):
            yield f"defines {shown(readable)}, as the tests do: {ELSEWHERE}"
        elif begins_with(readable, rubric()["allowed"]["reserved" if strong else "never"]):
            yield f"defines {shown(readable)}: a solution defines names of its own alone"
        elif not strong and defined[name] not in "VWu":
            yield f"defines {shown(readable)} so that the program's start decides what it is"
    yield from wrong_uses({name for name, _ in symbols("-u", path)} - own)
    if re.search(r"\t(syscall|sysenter|int +\$0x80)\b", output("objdump", "-d", path)):
        yield "calls the kernel by an instruction of its own"


OFTEN_FOR = {"syscall": " (as std::latch, std::barrier, semaphores, std::jthread and the wait() of an atomic do; "
                        "std::mutex, std::condition_variable and std::thread are allowed)"}


def wrong_uses(names):
    """`names`: as the linker has them, also with a version."""
    plain = sorted({name.partition("@")[0] for name in names})
    allowed = rubric()["allowed"]
    for name in plain:
        is_allowed = name in allowed["c"] or re.fullmatch(allowed["c_families"], name)
        if not name.startswith("_Z") and not is_allowed:
            yield (f"uses {name}{OFTEN_FOR.get(name, '')}: a solution computes; it reads and writes no files, starts "
                   "and ends no process, and leaves time and the environment alone")
    mangled = [name for name in plain if name.startswith("_Z")]
    for name, readable in zip(mangled, demangled(mangled)):
        yield from wrong_use(name, readable)


# typeinfo of fundamental types, of pointers to them and of pointers to const: throw "text", std::any of int.
OF_FUNDAMENTAL_TYPE = re.compile(r"_ZT[IS](PK?)?(D[defhinsu]|[a-z])")


def wrong_use(mangled, name):
    """At most one reason. `name`: the mangled one as in C++."""
    if OF_FUNDAMENTAL_TYPE.fullmatch(mangled):
        return
    allowed = rubric()["allowed"]
    for forbidden, why in rubric()["forbidden"].items():
        if name.startswith(forbidden):
            yield f"uses {shown(name)}: {why}"
            return
    for does, starts in rubric()["forbidden_cpp"].items():
        if name.startswith(tuple(starts)):
            yield f"uses {shown(name)}: a solution that {does} is not graded"
            return
    if not begins_with(name, allowed["cpp"]):
        yield f"uses {shown(name)}, which is nothing of std, of LibTorch or of the course"
        return
    if mangled in names_of_tests():
        yield f"uses {shown(name)}, which the tests define"
        return
    room, strongly = names_of_others().get(mangled, ("", False))
    if strongly and room.startswith("common/"):
        room = room.removeprefix("common/")
        if room not in allowed["rooms"] or not begins_with(name, allowed["names"].get(room, [name])):
            yield f"uses {shown(name)} of common/{room}/, on which no task stands"


def folders_of_compiler(compiler):
    """Its own include folders, wherever it lies: not those that the environment adds, nor what the course is in."""
    said = subprocess.run([compiler, "-E", "-v", "-x", "c++", "/dev/null"], capture_output=True, text=True,
                          errors="replace", env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}).stderr
    listed = said.partition("#include <...> search starts here:")[2].partition("End of search list")[0]
    found = (pathlib.Path(line.strip()).resolve() for line in listed.splitlines() if line.strip().startswith("/"))
    return [folder for folder in found if folder not in (ROOT, *ROOT.parents)]


@functools.cache
def given_folders():
    """In which all files may be included: the system's, the compiler's and LibTorch's."""
    torch = (pathlib.Path(path).resolve() for path in libraries() if "libtorch" in path)
    return (pathlib.Path("/usr"), *folders_of_compiler(sandbox.compiler()), *(path.parent.parent for path in torch))


def included(path):
    """What is included in an object."""
    listing = output("ninja", "-C", str(BUILD), "-t", "deps", str(path.relative_to(BUILD)))
    return [(BUILD / line.strip()).resolve() for line in filter(None, listing.splitlines()[1:])]


def wrong_includes(files, stack, graded):
    """Of the repository a solution includes common/ and the tasks' headers; the rest is not its own."""
    solutions = int((re.search(r"_on_(\d)$", stack) or [0, 0])[1])  # of tasks 1 to this one
    for file in files:
        if any(folder in file.parents for folder in given_folders()):
            continue
        if ROOT not in file.parents:
            yield f"includes {file}, which is no header of the course, of LibTorch or of the compiler"
            continue
        if graded in file.parents or BUILD / "CMakeFiles" in file.parents:
            continue
        name = file.relative_to(ROOT).as_posix()
        earlier = re.fullmatch(r"solutions/(?:extensions/)?task(\d)_\w+/\w+\.h", name)
        if earlier and int(earlier[1]) <= solutions:
            continue
        if not name.startswith("common/") or name.startswith("common/testing/"):
            yield f"includes {name}, which is no solution's"


def over_headers(stack, what):
    """The objects of NAME_taskN_tests, NAME_strategy or NAME_train, each with the same over the skeletons."""
    folder, blank = folder_of(f"{stack}_{what}"), folder_of(f"mine_{what}")
    for path in sorted(folder.rglob("*.o")):
        if not (same := blank / path.relative_to(folder)).exists():
            raise Refused(f"can't be looked at: the grader has no {same.name} of mine_{what} to compare with")
        yield path, same


def added(stack, what, graded):
    """What the headers add to the course's own code: it runs when that calls an inline function."""
    last = next((task for task in tasks() if f"task{task.number}_" in what), tasks()[-1])
    own, strong = own_names(stack, last), strong_names(stack, last)
    for path, blank in over_headers(stack, what):
        used, usual = ({name for name, _ in symbols("-u", object_)} for object_ in (path, blank))
        usually = set(included(blank))
        files = (file for file in included(path) if file not in usually)
        yield from wrong_includes(files, stack, graded)
        yield from wrong_uses(used - usual - own)
        for name in demangled(sorted(strong.intersection(defined_in(path)))):
            yield f"lets the tests define {shown(name)}, as a .cpp file does: {ELSEWHERE}"


def own_names(stack, last):
    """What the submission's files of these tasks, up to `last`, define and nobody else."""
    files = (path for task in tasks()[:last.number] for path, _ in objects(stack, task))
    return frozenset(name for path in files for name in defined_in(path) if name not in names_of_others())


def strong_names(stack, last):
    """Of these, and of those of others, what a linker takes in the place of a test's inline function."""
    files = (path for task in tasks()[:last.number] for path, _ in objects(stack, task))
    return {name for path in files for name, kind in defined_in(path).items() if is_strong(kind)}


def wrong(stack, task, graded):
    """Why the task's code is not run, as one line; empty if nothing is wrong. What the tasks before it define
    was looked at before."""
    found = list(objects(stack, task))
    for path, source in found:
        if path.stat().st_size > MOST_BYTES:
            return f"tasks/{source} becomes an object of more than {MOST_BYTES} bytes"
    source = task.folder
    try:
        own = own_names(stack, task)
        for path, source in found:
            for why in itertools.chain(wrong_includes(included(path), stack, graded), wrong_symbols(path, own)):
                return f"tasks/{source} {why}"
    except Refused as refused:
        return f"tasks/{source} {refused}"
    return ""


def wrong_over_headers(stack, what, graded):
    """The same of what the course compiles over the headers; `what`: as of over_headers()."""
    try:
        return next((f"a header that is compiled into {what} {why}" for why in added(stack, what, graded)), "")
    except Refused as refused:
        return f"{what} over the headers {refused}"
