"""Runs the tests of a program with graded code. The judge, another program, compares what the ranks
report: it has the same tests, linked with the skeletons, and runs no graded code
(common/testing/judge/remote_ranks.h)."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

from grader import compiling, sandbox, session, whole_file
from grader.course import BUILD, ROOT, rubric

OVERHEAD = 60  # [s] that a program may take beyond its tests' time limit
MOST_RESULT = 100_000_000  # [bytes] of the JSON that check writes


@dataclasses.dataclass
class Result:
    tests: list  # the tests in the form of `check --json`
    why: str = ""  # why no test was run
    seconds: float = 0
    # Problem number -> the problem in the form of `check --json`.
    problems: dict = dataclasses.field(default_factory=dict)
    sentinel_fails: bool = False
    left_out: str = ""  # why the submitted extensions are not in the program
    # Findings of scripts/look.sh in the task's code, for the instructor.
    notes: list = dataclasses.field(default_factory=list)
    # Sentences of scripts/look.sh about calls in the task's code that end a rank if they run.
    stopped: list = dataclasses.field(default_factory=list)
    cut_short: bool = False  # tests were left out because other programs used up the time


def result_file(key, seed):
    what = hashlib.sha256(f"{key} {seed}".encode()).hexdigest()[:32]
    return compiling.KEPT / "results" / f"{what}.json"


def kept(key, seed):
    try:
        return Result(**json.loads(result_file(key, seed).read_text()))
    except (OSError, ValueError, TypeError):  # there is no file, or a power failure damaged it
        return None


def is_of_the_machine(result):
    """Returns whether the machine, and not the student's code, may have caused the result, for
    example because another submission has filled the disk or the memory."""
    reasons = [
        result.why,
        result.left_out,
        *(test.get("text") or test.get("why", "") for test in result.tests),
    ]
    return any(
        reason.startswith("gave no result")
        or compiling.NO_REASON in reason
        or compiling.MACHINE.search(reason)
        for reason in reasons
    )


def keep(key, seed, result):
    """Stores the result for later gradings, unless the machine may have caused it or it was cut
    short: then the next grading runs the program again."""
    if is_of_the_machine(result) or result.cut_short:
        return
    path = result_file(key, seed)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whole_file.write(path, json.dumps(dataclasses.asdict(result)))


def shortened(entry, name):
    text = entry[name]
    return {**entry, name: text if len(text) <= 20_000 else text[:20_000] + "\n..."}


def read_result(path, task, seconds):
    """Returns the Result of the task's tests, read from the file that the grader's own `check
    --json` has written."""
    try:
        if (size := os.path.getsize(path)) > MOST_RESULT:
            raise ValueError(f"it has {size} bytes")
        found = json.loads(pathlib.Path(path).read_text(errors="replace"))
        tests = [shortened(test, "text") for test in found["tests"]]
        problems = {
            problem["number"]: shortened(problem, "explanation") for problem in found["problems"]
        }
        return Result(tests, "", seconds, problems, task.number in found["sentinel_fails"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Result([], f"gave no result: what check wrote is none: {error}", seconds)


def run(command, environment, seconds, folder=None):
    """Runs the command. Returns its exit status, or None if it took longer than `seconds`, and its
    output. Afterwards kills all processes that the command has started."""
    with (
        tempfile.TemporaryFile() as printed
    ):  # not a pipe: graded code can write at most `file_bytes` to a file
        process = subprocess.Popen(
            session.bound(command),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            session.end(process)
            process.wait()
        printed.seek(0)
        return status, printed.read().decode(errors="replace")


def sandboxed(path, script):
    """Writes `script`, which runs the program at `path` in the sandbox of graded code. Returns the
    script's path."""
    return sandbox.make(
        script, sandbox.limits_of_runs(), [path, *sandbox.libraries()], program=[path]
    )


LOST = re.compile(
    r"was still running at the time limit|did not report within \d+ s|CommunicatorOptions::timeout"
)
NOT_RUN = re.compile(r"not run: earlier runs of this (task|problem) did not end")


def lost_seconds(result):
    """Returns how many seconds the tests have wasted because they waited until a time limit. A wait
    counts with a fixed number of seconds, as in common/testing/judge/lost_time.h."""
    texts = (test.get("text", "") for test in result.tests)
    waits = [match.group(0).startswith("Comm") for match in map(LOST.search, texts) if match]
    return sum(2 if in_vain else 20 for in_vain in waits)


class Patience:
    """How many seconds the tests of one submission may still waste because they hang or fail. Once
    they have wasted the `lost_seconds` of rubric.toml, each later test program is ended when this
    program alone has wasted `lost_seconds_at_last`."""

    def __init__(self):
        self.lost, self.failing = 0, 0.0

    def of_next(self):
        """Returns the number of seconds that tests of the next test program may waste because they
        hang or fail. When the program has wasted them, it is ended."""
        limits = rubric()["limits"]
        return limits[
            "task_lost_seconds" if self.lost < limits["lost_seconds"] else "lost_seconds_at_last"
        ]

    def is_over(self):
        return self.failing >= rubric()["limits"]["failing_seconds"]

    def add(self, result):
        self.lost += lost_seconds(result)
        passed = bool(result.tests) and all(
            test.get("outcome") == "passed" for test in result.tests
        )
        self.failing += 0 if passed else result.seconds


OVER = (
    "not run: the tests of this submission that fail have taken too long; grade again, what is "
    "known is kept"
)


def run_tests(path, task, seed, patience=None):
    """Runs the tests of the program at `path` and returns the Result. `seed`: the seed of the
    hidden cases; "" runs the usual tests."""
    started = time.monotonic()
    limit = rubric()["limits"]["task_seconds"]
    patience = patience or Patience()
    if patience.is_over():
        return Result([], OVER, cut_short=True)
    at_most = patience.of_next()
    script = sandboxed(path, path.with_name("run.sh"))
    # The judge splits the command in FSDP_RANKS_OF at spaces, so the script is named relative to
    # its own folder, whose path may have spaces.
    environment = {**os.environ, "FSDP_ROOT": str(ROOT), "FSDP_RANKS_OF": f"./{script.name}"}
    environment.pop("FSDP_TEST_SEED", None)  # may be set in the shell that runs the grader
    environment["FSDP_MOST_LOST_SECONDS"] = str(at_most)
    if seed:
        environment["FSDP_TEST_SEED"] = seed
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "tests.json")
        command = [BUILD / "bin" / "check", str(task.number), "--stacks", "mine"]
        command += ["--seconds", str(limit), "--json", out]
        status, printed = run(command, environment, limit + OVERHEAD, script.parent)
        seconds = time.monotonic() - started
        if not os.path.exists(out):
            why = "its tests did not end" if status is None else printed[-500:]
            return Result([], f"gave no result: {why}", seconds)
        result = read_result(out, task, seconds)
        result.cut_short = at_most < rubric()["limits"]["task_lost_seconds"] and any(
            NOT_RUN.search(test.get("text", "")) for test in result.tests)
        patience.add(result)
        return result
