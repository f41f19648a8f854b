"""Audits the receipts of a class: every folder and zip in a folder holds receipts of ./fsdp train
and, if a student has added them, checkpoints. Prints a table and writes it as CSV.

The audits run in the sandbox of graded code. They run only programs of the course, but with options
and checkpoints that a student has written."""

import collections
import concurrent.futures
import csv
import dataclasses
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import tempfile
import textwrap

from grader import classroom, programs, receipt_files, run, sandbox, whole_file
from grader.course import BUILD, ROOT, Refused, one_line, rubric
from grader.progress import Progress

DRAW = 3  # events drawn from each receipt without --draw
PROGRAMS = ("audit", "reference_train")
# The options of ./fsdp train whose values are paths. trainer/options/options.cpp has the same list.
NAME_FILES = ("--text", "--tokens", "--init")
# The files of the repository whose text ./fsdp train uses as data if no option names data.
REPOSITORY_TEXT = ("README.md", "COURSE.md", "docs", "common", "programs", "tests")
# Matches the line in which ./fsdp audit describes a receipt.
HEAD = re.compile(
    r"receipt: steps (\d+) to (\d+) of (.*) on (\d+) ranks?, (\d+) events?, root ([0-9a-f]{64})"
)
EQUAL = re.compile(r"(?m)^steps? .*: (\d+) events? equal$")
ERROR = re.compile(r"(?m)^fsdp audit: (.*)$")


@dataclasses.dataclass
class Audited:
    """The result of the audit of one receipt, or of a submission without receipts. Its texts are
    printable."""

    student: str
    receipt: str = ""  # the receipt's path in the submission
    result: str = "no receipt"  # "equal", "WRONG", "refused" or "no receipt"
    why: str = ""  # the first difference, or why the receipt is refused
    seed: int = 0  # seed with which events were drawn
    model: str = ""
    first: int = 0  # first step of the run, counted from 1
    last: int = 0
    ranks: int = 0
    events: int = 0  # number of events in the receipt
    equal: int = 0  # number of events that were computed again and are equal
    root: str = ""
    losses: dict = dataclasses.field(default_factory=dict)  # (step, microbatch) -> hash of the loss
    same_as: list = dataclasses.field(default_factory=list)  # students with the same run

    @property
    def run(self):
        """Returns a cell of the table on the terminal: the model, the steps and the number of ranks
        of the run that the receipt records, such as "gpt2-tiny, 1-4, 2 ranks". Returns "" if no
        receipt was read."""
        ranks = f"{self.ranks} rank{'s' * (self.ranks != 1)}"
        return f"{self.model}, {self.first}-{self.last}, {ranks}" if self.root else ""


def seed_of(class_seed, student):
    """Returns the seed with which the events of this student's receipts are drawn: a hash of the
    class's seed and the student's name."""
    return int(hashlib.sha256(f"{class_seed}\0{student}".encode()).hexdigest()[:8], 16)


def own_data(options):
    """Returns --options of the instructor with absolute paths of the files that they name, because
    an audit runs in another folder, and a list of these paths. Raises Refused if such a file does
    not exist."""
    words, paths, expected = [], [], False
    try:
        given = shlex.split(options)
    except ValueError as error:
        raise Refused(f"--options {options}: {error}") from None
    for word in given:
        name, equals, value = word.partition("=")
        starts = word.startswith("--")
        if starts:
            expected = name in NAME_FILES
        if expected and (equals or not starts):
            kind, path = re.fullmatch(r"(hf:)?(.*)", value if starts else word).groups("")
            if not os.path.exists(path):
                raise Refused(f"--options: {path}: there is no such file or folder")
            paths.append(os.path.abspath(path))
            word = f"{name}{equals}{kind}{paths[-1]}" if starts else kind + paths[-1]
        words.append(word)
    return " ".join(f'"{word}"' if re.search(r"[\s']", word) else word for word in words), paths


@dataclasses.dataclass
class Auditor:
    """Audits receipts with the data of the class. `bin`: a folder with copies of PROGRAMS, because
    the sandbox's user may be unable to read build/."""

    bin: pathlib.Path
    draw: int
    options: str
    data: list  # the files and folders that `options` name

    def program(self, receipt, seed):
        """Returns the words of the command that audits the receipt. The command runs in the
        receipt's folder."""
        words = ["env", f"FSDP_ROOT={ROOT}", self.bin / "audit", "receipt", "--no-files"]
        words += ["--binary", self.bin / "reference_train", "--draw", self.draw, "--seed", seed]
        words += [f"--options={self.options}"] if self.options else []
        return words + (["--checkpoint", receipt.checkpoints] if receipt.checkpoints else [])

    def printed(self, receipt, seed):
        """Audits a receipt in the sandbox. Returns the exit status, or None if the audit did not
        end in time, and the output, in which each message that ./fsdp audit has wrapped is one line
        again."""
        scratch = receipt.folder / "scratch"
        scratch.mkdir()
        seen = [receipt.file, *([receipt.checkpoints] if receipt.checkpoints else []), self.bin]
        seen += [*sandbox.libraries("audit"), *sandbox.libraries("reference_train"), *self.data]
        seen += [ROOT / name for name in REPOSITORY_TEXT]
        words = map(str, self.program(receipt, seed))
        script = sandbox.make(receipt.folder / "run.sh", sandbox.limits_of_audits(), seen,
                              scratch, receipt.folder, program=tuple(words))
        status, text = run.run([script], None, rubric()["receipts"]["seconds"])
        return status, re.sub(r"\n {2,}", " ", text.replace("\n  made by ", ", made by "))

    def audit(self, student, receipt, seed):
        done = Audited(one_line(student), one_line(receipt.name), "refused", seed=seed)
        status, text = self.printed(receipt, seed)
        if head := HEAD.match(text):
            done.first, done.last, done.ranks, done.events = map(int, head.group(1, 2, 4, 5))
            done.model, done.root = one_line(head[3]), head[6]
            done.losses = losses_of(receipt.file)
        done.equal = sum(map(int, EQUAL.findall(text)))
        wrong = re.search(r"(?m)^WRONG: (.*)$", text)
        note = re.search(r"(?m)^note: (.*)$", text)
        if status == 0 and head:
            done.result = "equal"
        elif status == 1 and wrong:
            done.result = "WRONG"
            done.why = one_line("; ".join(found[1] for found in (wrong, note) if found))
        else:
            done.why = reason_in(status, text)
        return done


def reason_in(status, text):
    """Returns the reason why an audit ended without a result."""
    if status is None:
        return f"its audit took longer than {rubric()['receipts']['seconds']} s"
    if found := ERROR.findall(text):
        return one_line(found[-1])
    return one_line(f"its audit ended with status {status}: {text.strip()[-300:]}")


def losses_of(file):
    """Returns a dict, (step, microbatch) -> hash of the loss, for all losses in a receipt. Requires
    that ./fsdp audit has read the receipt without an error."""
    found = {}
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if '"what":"loss"' in line:
                leaf = json.loads(line)
                found[leaf["step"], leaf["part"]] = leaf["hash"]
    return found


def audit_submission(student, paths, class_seed, auditor, job, progress):
    """Audits all receipts of a submission, and returns their Audited, or one Audited that says why
    there is none. `paths`: a value of classroom.submissions()."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=job))
    folder.chmod(0o755)
    seed, found = seed_of(class_seed, student), []
    try:
        receipts = receipt_files.copy(classroom.only_one(paths), folder)
        for number, receipt in enumerate(receipts, 1):
            progress.draw(f"auditing {student}: receipt {number} of {len(receipts)}")
            found.append(auditor.audit(student, receipt, seed))
    except Refused as refused:
        found.append(Audited(one_line(student), "", "refused", str(refused)))
    except Exception as error:  # an error in one submission must not stop the others
        found.append(Audited(one_line(student), "", "refused", f"the grader failed: {error!r}"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found or [Audited(one_line(student))]


def same_runs(audited):
    """Yields (receipts of several students that record one run, why they count as one run).
    Receipts record one run if their roots are equal, or if more than half of the losses in the
    shorter receipt are also in the other one. The roots alone do not suffice, because a student who
    copies a receipt can change its root by another --receipt-sample."""
    roots, shared, owners = collections.defaultdict(list), collections.Counter(), {}
    for one in (one for one in audited if one.root):
        roots[one.root].append(one)
    for same in roots.values():
        if len({one.student for one in same}) > 1:
            yield same, f"the same root, {same[0].root}"
    first_of_each = [same[0] for same in roots.values()]
    for number, one in enumerate(first_of_each):
        for loss in one.losses.items():
            for other in owners.setdefault(loss, []):
                shared[other, number] += 1
            owners[loss].append(number)
    for (a, b), count in sorted(shared.items()):
        pair = first_of_each[a], first_of_each[b]
        least = min(len(one.losses) for one in pair)
        if 2 * count > least and pair[0].student != pair[1].student:
            yield pair, f"{count} of {least} losses are equal, though their roots differ"


def name_same_runs(audited):
    """Sets `same_as` of the receipts that record the same run as a receipt of another student.
    Returns a sentence about each such group of receipts."""
    sentences = []
    for same, why in same_runs(audited):
        names = sorted({one.student for one in same})
        for one, other in itertools.permutations(same, 2):
            if other.student not in (one.student, *one.same_as):
                one.same_as = sorted([*one.same_as, other.student])
        sentences.append(
            f"{', '.join(names)}: the same run ({why}): a receipt is a copy of another one, or "
            f"they honestly trained with the same options and the same data"
        )
    return sentences


HEADLINE = f"{'student':28} {'receipt':16} {'model, steps, ranks':28} {'equal':>6} result"


def lines_of(audited):
    """Returns the lines that the table on the terminal has for a receipt."""
    one = audited
    equal = str(one.equal) if one.result in ("equal", "WRONG") else ""
    row = f"{one.student:28.28} {one.receipt:16.16} {one.run:28.28} {equal:>6} {one.result}"
    seed = f"drawn with --seed {one.seed}: " if one.result == "WRONG" else ""
    why = textwrap.wrap(seed + one.why, 95) if one.why else []
    return [row, *(f"    {line}" for line in why)]


def table(audited):
    """Returns the table of all receipts as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["student", "receipt", "result", "reason", "model", "first step", "last step",
                     "ranks", "events", "events equal", "seed", "root", "same run as"])
    for one in audited:
        texts = (one.student, one.receipt, one.result, one.why.replace(";", ","), one.model)
        numbers = (one.first, one.last, one.ranks, one.events, one.equal, one.seed)
        writer.writerow([*map(classroom.cell, texts), *(number or "" for number in numbers),
                         one.root, classroom.cell(", ".join(one.same_as))])
    return text.getvalue()


def make_auditor(arguments, job):
    """Builds the programs of the course that audits run, copies them into `job`, and returns the
    Auditor."""
    options, data = own_data(arguments.options or "")
    programs.build(*PROGRAMS)
    folder = job / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        shutil.copy(BUILD / "bin" / name, folder)
        (folder / name).chmod(0o755)
    folder.chmod(0o755)
    return Auditor(folder, arguments.draw or DRAW, options, data)


def chosen(arguments):
    """Returns the submissions of the class, or of the student that --student names."""
    folder = pathlib.Path(arguments.receipts)
    if not folder.is_dir():
        raise Refused(f"--receipts {folder}: there is no such folder")
    found = classroom.submissions(folder)
    if arguments.student is not None:
        found = {name: paths for name, paths in found.items() if name == arguments.student}
        if not found:
            raise Refused(f"--student {arguments.student}: {folder} has no such submission")
    return found


def grade(arguments):
    found = chosen(arguments)
    seed = arguments.seed or os.urandom(8).hex()
    out = pathlib.Path(
        arguments.out or f"{pathlib.Path(arguments.receipts).resolve().name}-receipts.csv"
    )
    audited = []
    with programs.new_job() as job, concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        auditor = make_auditor(arguments, job)
        whole_file.write(out, table([]))
        print(HEADLINE, flush=True)
        progress = Progress(len(found))
        running = [pool.submit(audit_submission, name, paths, seed, auditor, job, progress)
                   for name, paths in found.items()]
        for future in running:
            audited += (own := future.result())
            progress.show_lines([line for one in own for line in lines_of(one)])
            whole_file.write(out, table(audited))
    for sentence in name_same_runs(audited):
        print(textwrap.fill(sentence, 99, subsequent_indent="    "))
    whole_file.write(out, table(audited))
    print(f"{out}; sandbox: {sandbox.best_mode()}; the audit of a student again:\n"
          f"  {repeat(arguments, seed)}")
    return 0


def repeat(arguments, seed):
    """Returns the command with which the instructor can audit a student again, with the same seed
    and so the same events."""
    words = ["./fsdp", "grade", "--receipts", arguments.receipts, "--seed", seed]
    words += ["--draw", str(arguments.draw)] if arguments.draw else []
    words += ["--options", arguments.options] if arguments.options else []
    return f"{shlex.join(words)} --student {shlex.quote(arguments.student or 'NAME')}"
