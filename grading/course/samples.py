#!/usr/bin/env python3
"""Compares the output that pages show with the output of runs. The samples are those of
samples.toml and the programs of appendix/.

Prints a line for each sample, and exits with 1 if one differs. --write writes the output of the
runs into the pages.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import changed  # noqa: E402
import lists  # noqa: E402
from grader.course import BUILD, ROOT, Refused, tasks  # noqa: E402

BIN = BUILD / "bin"
APPENDIX = pathlib.Path("appendix/README.md")
SECONDS = 900  # time limit of a program
# The ways to save memory that the handout of task 7 compares: (title, options of ./fsdp train). The
# run of an entry also has the options of the entries before it.
LEVERS = (
    ("DDP", "--world 4 --mode ddp"),
    ("FSDP, one unit", "--mode fsdp --wrap none"),
    ("a unit for each block", "--wrap block"),
    ("activations computed again", "--checkpoint-activations all"),
    ("the optimizer in backward", "--step-in-backward on"),
    ("optimizer's state in a file", "--offload optimizer --offload-dir DIR"),
    ("no prefetch", "--prefetch off"),
    ("twice the ranks", "--world 8"),
)


def load():
    appendix = [
        {
            "page": str(APPENDIX),
            "name": f"./fsdp appendix {pathlib.Path(program).stem}",
            "from": f"<!-- output of {program} -->\n",
            "kind": "program",
        }
        for program in programs()
    ]
    return lists.load("course/samples.toml") + appendix


def programs():
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("appendix/*.cpp"))


def files_of(sample):
    """Returns the files on which the sample's output depends: the page, and the program, or the
    code that trains, or the tests of the task."""
    kind, page = sample["kind"], sample["page"]
    if kind == "program":
        return {page, f"appendix/{sample['name'].split()[-1]}.cpp"}
    folders = ["trainer/prediction", "trainer/report"]
    if kind in ("mistake", "nothing", "solutions"):
        folders = ["programs/check"]
    if kind == "plan":
        folders = ["programs/plan", "trainer/planning", "trainer/prediction"]
    if kind == "audit":
        folders = ["trainer/diff", "trainer/receipt"]
    folders += [
        f"tests/task{task.number}_{task.name}"
        for task in tasks()
        if kind == "mistake" and task.number == sample["task"]
    ]
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {page, *(str(path.relative_to(ROOT)) for path in paths)}


def run(words, folder=None):
    """Runs a program of the build with the environment that ./fsdp sets, in `folder` or, if that is
    None, in the current folder."""
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "FSDP_ROOT": str(ROOT)},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
    )


def block_span(text, sample):
    """Returns the span (begin, end) of the sample's output in the page's `text`: the first fenced
    or indented block after the command. For a table of peaks, it is the table with the command in
    its head."""
    if sample["kind"] == "peaks":
        found = re.search(rf"(?m)^\| `{re.escape(sample['name'])}` \|.*\n(?:\|.*\n)+", text)
        if not found:
            raise Refused(f"{sample['page']} has no table of {sample['name']}")
        return found.span()
    at = text.find(f"    {sample['name']}\n") if "from" not in sample else text.find(sample["from"])
    if at < 0:
        raise Refused(f"{sample['page']} does not show the command {sample['name']}")
    if sample["kind"] in ("indented", "plan", "audit"):
        found = re.compile(r"(?:    .*\n|\n(?=    ))+").search(text, text.index("\n\n", at) + 2)
        return found.start(), found.end()
    begin = text.find("```\n", at) + 4
    if begin < 4:
        raise Refused(f"{sample['page']} shows no output of {sample['name']}")
    return begin, text.index("```", begin)


def check_with_a_mistake(sample):
    """Returns what the program `check` prints if the reference solution has the sample's mistake.
    `check` selects test programs by a name, the stack: mine_on_2 is the student's code linked with
    the reference solutions of tasks 1 and 2. The test program with the mistake gets the name in the
    sample's field `stack`, and `check` runs this program."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        changed.build(
            sample["task"], sample, folder / f"{sample['stack']}_task{sample['task']}_tests"
        )
        check = folder / "check"  # check runs the test programs in its own folder
        check.write_bytes((BIN / "check").read_bytes())
        check.chmod(0o700)
        return run([check, *sample["name"].split()[2:], "--stacks", sample["stack"]]).stdout


def check_of_nothing(_):
    return run([BIN / "check", "--stacks", "mine", "--blank", "0,1,2,3,4,5,6,7"]).stdout


def check_of_solutions(_):
    return run([BIN / "check", "--stacks", ",".join(["reference"] * 8)]).stdout


def failing_training(sample):
    """Returns the error that the ./fsdp train command of `sample` prints, indented."""
    error = run([BIN / "reference_train", *sample["name"].split()[2:]]).stderr
    return "".join(f"    {line}\n" for line in error.splitlines())


def answer_of_plan(sample):
    """Returns what the ./fsdp plan command of `sample` prints, indented. A sample is a command
    whose output a page of the course shows (grading/course/samples.toml)."""
    printed = run([BIN / "plan", *sample["name"].split()[2:]]).stdout
    return "".join(f"    {line}\n" for line in printed.splitlines())


def answer_of_audit(sample):
    """Runs the ./fsdp train command in the field `train` of `sample`, and returns what ./fsdp audit
    prints about this training run, indented. The seconds in the output are replaced by those that
    the page shows, because they differ between runs."""
    with tempfile.TemporaryDirectory() as folder:
        run([BIN / "reference_train", *sample["train"].split()[2:]], folder)
        program = ["--binary", BIN / "reference_train"]
        printed = run([BIN / "audit", *sample["name"].split()[2:], *program], folder).stdout
    printed = re.sub(r"computed again in [0-9.]+ s", "computed again in 6.1 s", printed)
    return "".join(f"    {line}\n" for line in printed.splitlines())


def program_of_appendix(sample):
    done = run([BIN / f"appendix_{sample['name'].split()[-1]}"])
    return (
        done.stdout + done.stderr + (f"exit status {done.returncode}\n" if done.returncode else "")
    )


def levers_of_memory(sample):
    """Returns a table as text, with a line for each entry of LEVERS, the ways to save memory: its
    title, its options, and the peak of live bytes that a training with these options prints."""
    lines, options = [], {}  # a later --wrap or --mode replaces an earlier one
    with tempfile.TemporaryDirectory() as folder:
        for title, words in LEVERS:
            options.update(zip(words.split()[::2], words.split()[1::2]))
            given = [word.replace("DIR", folder) for pair in options.items() for word in pair]
            printed = run([BIN / "reference_train", *sample["name"].split()[2:], *given]).stdout
            lines.append(
                f"{title:30}{words:39}{re.search(r'peak ([0-9,]*[0-9])', printed)[1]:>13}\n"
            )
    return "".join(lines)


def table_of_peaks(sample):
    """Returns the page's table of peaks with measured values: the last cell of each row gets the
    peak of live bytes, in MB, of a training. If a row has options, in its first pair of backticks,
    they are added to the command in the table's head; DIR in them stands for a temporary folder."""
    text = (ROOT / sample["page"]).read_text()
    begin, end = block_span(text, sample)
    head, rule, *rows = text[begin:end].splitlines(keepends=True)
    for i, row in enumerate(rows):
        with tempfile.TemporaryDirectory() as folder:
            options = re.search(r"`(.*?)`", row)
            given = options[1].replace("DIR", folder).split() if options else []
            printed = run([BIN / "reference_train", *sample["name"].split()[2:], *given]).stdout
        peak = int(re.search(r"peak ([0-9,]*[0-9])", printed)[1].replace(",", ""))
        rows[i] = re.sub(r"\| [0-9.,]+ MB \|$", f"| {peak / 1e6:.1f} MB |", row)
    return "".join([head, rule, *rows])


KINDS = {
    "mistake": check_with_a_mistake,
    "nothing": check_of_nothing,
    "solutions": check_of_solutions,
    "indented": failing_training,
    "plan": answer_of_plan,
    "audit": answer_of_audit,
    "levers": levers_of_memory,
    "peaks": table_of_peaks,
    "program": program_of_appendix,
}


def play(sample, write=False):
    """Runs a sample. Returns up to three messages about lines in which the page and the output
    differ. `write`: writes the output into the page."""
    printed = KINDS[sample["kind"]](sample)
    path = ROOT / sample["page"]
    text = path.read_text()
    begin, end = block_span(text, sample)
    # Parts that differ from run to run are not compared: those that match the regular expression
    # `varies` of the sample.
    before, now = (
        re.sub(sample.get("varies", "(?!)"), "", part) for part in (text[begin:end], printed)
    )
    if write and before != now:
        path.write_text(text[:begin] + printed + text[end:])
    lines = zip([*before.splitlines(), "the end"], [*now.splitlines(), "the end"])
    return [f"{sample['page']} shows '{a}', prints '{b}'" for a, b in lines if a != b][:3]


def wrong_quotes(page):
    """Yields a message for each program of which the appendix quotes no line, and for each program
    that lacks a quoted line; "..." in a quote matches any lines."""
    quotes = dict(re.findall(r"<!-- lines of (\S+) -->\n```cpp\n(.*?)```", page, re.DOTALL))
    for name in {*programs(), *re.findall(r"<!-- \w+ of (\S+) -->", page)} - quotes.keys():
        yield f"{APPENDIX} quotes no line of {name}"
    for name, quoted in quotes.items():
        path = ROOT / name
        lines = iter(
            [line.strip() for line in path.read_text().splitlines()] if path.exists() else []
        )
        wanted = (line.strip() for line in quoted.splitlines())
        missing = next(
            (line for line in wanted if line not in ("", "...") and line not in lines), None
        )
        if missing:
            yield f"{name} does not have, in this order, the line: {missing}"


def wrong_forms():
    """Yields the mistakes in the list of samples, and in the appendix, that can be found without
    running a program."""
    yield from wrong_quotes((ROOT / APPENDIX).read_text())
    for sample in load():
        try:
            block_span((ROOT / sample["page"]).read_text(), sample)
            if "old" in sample:
                changed.changed_text(sample["task"], sample)
        except Refused as refused:
            yield str(refused)


def main():
    parser = lists.parser(__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the output of the runs into the pages"
    )
    parser.add_argument("--check", action="store_true",
                        help="check only the form of the list; run nothing")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit("\n".join(wrong_forms()) or 0)
    samples = lists.chosen(load(), arguments, files_of, fixed=2, most=6)
    changed.prepare("appendix_programs", "check", "plan", "reference_train",
                    *(f"reference_task{task.number}_tests" for task in tasks()))
    lists.play(
        arguments, samples, lambda sample: "\n    ".join(play(sample, arguments.write)), files_of
    )


if __name__ == "__main__":
    main()
