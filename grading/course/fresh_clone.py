#!/usr/bin/env python3
"""Runs every command that the texts show in a clone that has built nothing, and prints a table.

A line of the table is the help of a verb of ./fsdp, a command in a code block of a page, or a line
that fresh_clone.toml adds. The lines of each page run in a new clone. Files that a line writes stay
for the lines after it, but build/ is removed before each line, so the line must build everything
that it uses; only lines that run built programs directly keep build/. To save time, the compiler of
the clone (compiler_of_clone.sh) copies compiled files from this repository's build if they are up
to date. With --really it compiles everything, which takes hours for the whole table.
"""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import changed  # noqa: E402
import handout  # noqa: E402
import lists  # noqa: E402
from grader.course import BUILD, ROOT, Refused, tomllib  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PAGES = (
    "README.md",
    "COURSE.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "appendix/*.md",
    "tasks/*.md",
    "tasks/*/*.md",
    "grading/*.md",
    "grading/*/README.md",
    "scripts/maintain.txt",
)
# Lines that fresh_clone.toml adds to the table are on no page. Their `page` is OWN if they are in
# its list `also`, and IN_HANDOUT if they are in its list `in_handout`.
OWN, IN_HANDOUT = "fresh_clone.toml", "fresh_clone.toml, in a handout"
# A row of a code block on a page is a command if its beginning matches this regular expression. In
# scripts/maintain.txt, `P` stands for the Python of the repository.
BEGINS = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:\./fsdp|scripts/|build/|\.venv/bin/|P grading/|cmake |ctest |ninja |gdb |"
    r"torchrun |mpirun |srun )"
)
# If the output of a command matches this regular expression of error texts, something that the
# command needs is missing. Then the command counts as failed, unless fresh_clone.toml expects the
# text.
WRONG = re.compile(
    r"Traceback|CMake Error|No such file or directory|command not found|unknown verb|is not built"
)


@dataclasses.dataclass
class Line:
    page: str
    number: int
    text: str  # the command as the page shows it
    expected: dict = dataclasses.field(default_factory=dict)  # what fresh_clone.toml expects of it

    @property
    def name(self):
        return f"{self.page}:{self.number}  {self.text}"

    @property
    def keeps_build(self):
        """Returns whether this command runs programs that the commands before it have built. If so,
        build/ is not removed before this command runs."""
        words = [
            word
            for word in shlex.split(self.text, comments=True)
            if not re.match(r"[A-Z_]+=", word)
        ]
        return words[0] in ("ctest", "gdb") or words[0].startswith("build/")


def lines_of_text(page, text):
    """Returns the commands of a page, as Lines: those of its indented code blocks and of
    scripts/maintain.txt, and each `./fsdp appendix NAME` whose output the page shows."""
    found, fenced = [], False
    rows = text.splitlines()
    for number, row in enumerate(rows, 1):
        if row.startswith("```"):
            fenced = not fenced
        while row.endswith("\\"):
            row = row[:-1].rstrip() + " " + rows[number].strip()
            number += 1
        indented = re.match(r"    (?! )(.*)", row) or (
            page.endswith(".txt") and re.match(r"  (?! )(.*)", row)
        )
        if indented and not fenced and BEGINS.match(indented[1]):
            found.append(
                Line(page, number, re.sub(r"\s{2,}(?=[^\s#])", "  # ", indented[1], count=1))
            )
        found += [
            Line(page, number, command)
            for command in re.findall(r"`(\./fsdp appendix [a-z_]+)` prints", row)
        ]
    return found


def usage():
    return subprocess.run(
        [ROOT / "fsdp", "help"], capture_output=True, text=True, check=True
    ).stdout


def lines_of_help():
    verbs = dict.fromkeys(re.findall(r"^  ([a-z]+) ", usage(), re.MULTILINE))
    return [Line("./fsdp help", number, f"./fsdp {verb} --help", {"says": f"(?m)^  {verb} |{verb}"})
            for number, verb in enumerate(verbs, 1)]


def load():
    """Returns every command of the table as a Line, with what fresh_clone.toml expects of it, and
    the settings in fresh_clone.toml."""
    settings = tomllib.loads((HERE / "fresh_clone.toml").read_text())
    lines = lines_of_help()
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            page = str(path.relative_to(ROOT))
            lines += lines_of_text(page, path.read_text())
    for page, texts in ((OWN, settings["also"]), (IN_HANDOUT, settings["in_handout"])):
        lines += [Line(page, number, text) for number, text in enumerate(texts, 1)]
    used = set()
    for line in lines:
        for key in sorted(settings["lines"], key=len):
            if line.text.startswith(key) or f"{line.page} {line.text}".startswith(key):
                line.expected = {**line.expected, **settings["lines"][key]}
                used.add(key)
    if unused := settings["lines"].keys() - used:
        raise Refused(
            f"fresh_clone.toml: no page shows a line that begins with {', '.join(sorted(unused))}"
        )
    return lines, settings


class Clone:
    """A folder with the files of this repository, or of a handout, and with nothing built."""

    def __init__(self, folder, really):
        self.folder = folder / "clone"
        self.really, self.aside = really, folder
        self.environment = {name: value for name, value in os.environ.items()
                            if name == "FSDP_DEPENDENCIES" or not name.startswith("FSDP_")}
        if really:
            return
        programs = folder / "bin"
        programs.mkdir()
        (programs / "cmake").symlink_to(HERE / "cmake_of_clone.sh")
        (programs / "c++").symlink_to(HERE / "compiler_of_clone.sh")
        cache = (BUILD / "CMakeCache.txt").read_text()
        self.environment |= {
            "FRESH_CLONE": str(self.folder), "FRESH_ROOT": str(ROOT), "FRESH_BUILD": str(BUILD),
            "FRESH_NEEDS": str(folder / "needs"), "FRESH_CMAKE": shutil.which("cmake"),
            "FRESH_CXX": re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)[1],
            "CXX": str(programs / "c++"), "PATH": f"{programs}:{os.environ['PATH']}"}
        (folder / "needs").write_text(
            "".join(f"{output}\t{file}\n" for output, file in needed_files())
        )

    def begin(self, page):
        """Replaces the clone by a new one, in which the commands of `page` will run. If the page is
        for students, the new clone is a handout: the files that students get."""
        shutil.rmtree(self.folder, ignore_errors=True)
        in_handout = page in handouts_pages()
        if in_handout:
            self.folder.mkdir()
            for name, (content, executable) in handout.contents().items():
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(0o755 if executable else 0o644)
        else:
            clone_of_repository(self.folder)
        self.environment["FRESH_CONFIGURED"] = str(
            self.aside / ("handout" if in_handout else "repository")
        )
        same = all(
            (ROOT / path.relative_to(self.folder)).exists()
            and path.read_bytes() == (ROOT / path.relative_to(self.folder)).read_bytes()
            for path in (self.folder / "tasks").rglob("*.cpp")
        )
        self.environment["FRESH_TASKS"] = "" if same else "others"
        for name in (".venv", ".venv-peers"):
            if (ROOT / name).exists():
                (self.folder / name).symlink_to(ROOT / name)

    def run(self, command, seconds):
        """Runs a command in the clone. Returns its exit status, or None if it was killed after
        `seconds`, and its output."""
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            printed = process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0].decode(errors="replace")
        return process.returncode, printed.decode(errors="replace")


def needed_files():
    """Yields (output, file) for each file in the build folder that a compiler read for an output;
    both paths are relative to the build folder."""
    listed = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "deps"], capture_output=True, text=True, check=True
    ).stdout
    output = None
    for row in listed.splitlines():
        if not row.startswith(" "):
            output = row.split(": #deps")[0]
        else:
            path = row.strip()
            if not path.startswith("/") or path.startswith(f"{BUILD}/"):
                yield output, path.removeprefix(f"{BUILD}/")


def handouts_pages():
    """Returns the pages whose commands are for students. These commands run in a handout: the files
    that students get."""
    names = (handout.RENAMED.get(line, line) for line in handout.tracked())
    return {
        IN_HANDOUT,
        *handout.RENAMED,
        *(name for name in names if name.startswith(("appendix/", "tasks/"))),
    }


def clone_of_repository(folder):
    """Clones this repository into `folder`, and commits there the changes that are not committed
    here."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder], check=True)
    with open(folder / ".git/info/exclude", "a") as file:
        file.write("/.venv\n/.venv-peers\n")
    here = set(handout.tracked())
    for name in subprocess.run(
        ["git", "-C", folder, "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if name not in here:
            (folder / name).unlink()
    for name in here:
        if (
            not (folder / name).exists()
            or (folder / name).read_bytes() != (ROOT / name).read_bytes()
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
            os.utime(folder / name)
    git = ["git", "-C", folder, "-c", "user.name=clone", "-c", "user.email=clone@localhost"]
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run(
        [*git, "commit", "--quiet", "--allow-empty", "-m", "what is not committed yet"], check=True
    )


def command_of(line, words):
    """Returns the command that is run for a Line: the line's text without comments and optional
    parts, with values for the words that a reader replaces, and with the shorter options of
    fresh_clone.toml."""
    if line.page in (OWN, IN_HANDOUT):
        return line.text
    command = re.sub(r"\s+# .*|\s+#$", "", line.text)
    command = re.sub(r"\[[^\]]*\]", "", command).replace(" ...", "")
    command = re.sub(r"^P (?=grading/)", ".venv/bin/python3 ", command)
    for long, short in line.expected.get("shorter", {}).items():
        if long not in command:
            raise Refused(f"fresh_clone.toml: {line.name} has no '{long}'")
        command = command.replace(long, short)
    for word, value in words.items():
        command = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", value, command)
    return f"{command} {line.expected['with']}" if "with" in line.expected else command


def attempt(clone, line, words):
    """Runs the command of `line` in the clone. Returns how its exit status, its output or the files
    that it makes differ from what fresh_clone.toml expects; "" if nothing differs."""
    expected = line.expected
    if not line.keeps_build:
        shutil.rmtree(clone.folder / "build", ignore_errors=True)
    for command in expected.get("before", []):
        status, printed = clone.run(command, 6000)
        if status:
            return f"before it, {command}: status {status}: {printed.strip()[-300:]}"
        if not line.keeps_build:
            shutil.rmtree(clone.folder / "build", ignore_errors=True)
    seconds = expected.get("seconds", 600) * (10 if clone.really else 1)
    status, printed = clone.run(command_of(line, words), seconds)
    end = " / ".join(printed.strip().splitlines()[-3:])[-300:]
    if status is None:
        return f"has not ended: {end}"
    if status != expected.get("status", 0):
        return f"status {status}, not {expected.get('status', 0)}: {end}"
    if found := WRONG.search(printed):
        if not re.search(WRONG, expected.get("says", "")):
            return f"prints '{found[0]}': {end}"
    if not re.search(expected.get("says", ""), printed):
        return f"does not print '{expected['says']}': {end}"
    missing = [name for name in expected.get("makes", []) if not (clone.folder / name).exists()]
    return f"has not made {', '.join(missing)}" if missing else ""


def why_left_out(line, clone):
    """Returns the reason why the command of `line` is not run; None or "" if it is run. `line` is a
    Line: a command of the table, with the fields that fresh_clone.toml has for it. Its field
    `needs` is a path or the name of a program that this machine must have."""
    if line.expected.get("compiles") and not clone.really:
        return "calls the compiler itself, in a sandbox; --really tries it"
    needed = line.expected.get("needs")
    if needed and not ((ROOT / needed).exists() or shutil.which(needed)):
        return f"this machine has no {needed}"
    return line.expected.get("skip")


def play(lines, settings, clone):
    """Runs the commands of `lines` and prints the table. Returns how many passed, how many failed
    and how many were left out."""
    counts, page = [0, 0, 0], None
    print(f"{'line':100} {'seconds':>7}  verdict")
    for line in lines:
        left_out = why_left_out(line, clone)
        started = time.monotonic()
        wrong = ""
        if not left_out:
            if line.page != page:
                page = line.page
                clone.begin(page)
            wrong = attempt(clone, line, settings["words"])
        counts[2 if left_out else bool(wrong)] += 1
        verdict = f"not tried: {left_out}" if left_out else wrong or "as the text says"
        print(f"{line.name[:100]:100} {time.monotonic() - started:7.1f}  {verdict}", flush=True)
    return counts


# Unless --only is given, the commands of these two pages always run. "./fsdp help" stands for the
# help of every verb. OWN stands for the list `also` of fresh_clone.toml: the first commands of
# students and users, and wrong commands.
QUICK = ("./fsdp help", OWN)


def chosen(lines, arguments):
    if arguments.only:
        return [line for line in lines if any(text in line.name for text in arguments.only)]
    pages = lists.changed_files() if arguments.changed else ()
    return [line for line in lines if line.page in QUICK or arguments.all or
            (arguments.pages or line.page in pages) and not line.expected.get("long")]


def main():
    parser = lists.parser(__doc__)
    parser.add_argument(
        "--pages",
        action="store_true",
        help="also the lines of the pages that take less than a minute",
    )
    parser.add_argument("--all", action="store_true", help="all lines")
    parser.add_argument(
        "--list", action="store_true", help="print the commands; run nothing"
    )
    parser.add_argument("--really", action="store_true", help="compile everything")
    parser.add_argument(
        "--folder", type=pathlib.Path, help="the folder for the clone; must be empty"
    )
    arguments = parser.parse_args()
    try:
        lines, settings = load()
    except Refused as refused:
        sys.exit(str(refused))
    lines = chosen(lines, arguments)
    if arguments.list:
        for line in lines:
            print(
                f"{line.page}:{line.number}  "
                f"{line.expected.get('skip') or command_of(line, settings['words'])}"
            )
        return
    if not arguments.really:
        changed.prepare("everything")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        # A command of the table may grade a submission. The grader runs the submission's code as
        # another user, who must be able to read files in this folder.
        os.chmod(folder, 0o755)
        passed, failed, left_out = play(
            lines, settings, Clone(pathlib.Path(folder).resolve(), arguments.really)
        )
    print(f"{passed} as the text says, {failed} not, {left_out} not tried")
    if arguments.totals:
        with open(arguments.totals, "a") as file:
            file.write(f"{passed} {failed} {left_out}\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
