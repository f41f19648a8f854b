"""Training with the student's seven tasks beside the reference: in turns, by the grader's clock. A
run counts if its parameters end as the reference's, from a seed that nobody knew."""

import dataclasses
import hashlib
import pathlib
import re
import shutil
import time

from grader import programs, run, score
from grader.course import BUILD, rubric, tasks


@dataclasses.dataclass
class Training:
    seconds: float = 0.0
    parameters: str = ""  # the beginning of their hash
    why: str = ""  # there is none of this


def train(script, seed):
    """`script`: of run.sandboxed()."""
    settings = rubric()["throughput"]["train"]
    command = [script, *settings, "--recipe", "published", "--seed", str(seed)]
    started = time.monotonic()
    status, text = run.run(command, None, rubric()["limits"]["train_seconds"])
    if status is None:
        return Training(why="training did not end in time")
    seconds = time.monotonic() - started
    # Graded code prints into the same stream. It can't keep the program from printing its line, so
    # a line of its own is seen by their number.
    parameters = re.findall(r"(?m)^.*sha256 (\w+)", text)
    if status != 0 or not parameters:
        return Training(why="training failed: " + text.strip()[-500:])
    if len(parameters) > 1:
        return Training(why="training prints its result more than once")
    return Training(seconds, parameters[0])


def compare(program, seed):
    """Each in turn; the fastest of both."""
    turns = []
    # Build/ may be closed.
    reference = shutil.copy(BUILD / "bin" / "reference_train", program.parent)
    scripts = [run.sandboxed(path, program.with_name(f"{path.name}.sh"))
               for path in (pathlib.Path(reference), program)]
    for _ in range(rubric()["throughput"]["turns"]):
        turn = [train(script, seed) for script in scripts]
        if turn[0].why:
            return {"points": 0, "why": f"gave no result: the reference's {turn[0].why}"}
        if turn[1].why:
            return {"points": 0, "why": turn[1].why}
        if turn[0].parameters != turn[1].parameters:
            why = "training ends with other parameters than the reference"
            return {"points": 0, "why": why}
        turns.append(turn)
    reference, best = (min(run.seconds for run in runs) for runs in zip(*turns))
    ratio = best / reference
    most, full = (rubric()["throughput"][name] for name in ("points", "full"))
    return {"points": round(most * min(1, full / ratio), 2), "ratio": round(ratio, 3)}


def measure(builder, grade, seed, fresh):
    """`points` and, where training was possible, the seconds as a ratio to the reference's. What is
    needed for it are the usual tests: students see whether it was possible, and nothing that they
    see may tell of hidden cases."""
    last = tasks()[-1]
    own = next((s for s in grade.scores.get(last.number, []) if s.base == "own"), None)
    if own is None or own.usual_points < score.most_usual_points(last):
        return {"points": 0, "why": "training needs all of task 7 over your own tasks"}
    program = programs.training_program()
    key = program.key(builder.submission, builder.looked_at)
    known = None if fresh else run.kept(key, seed)
    if known:
        return known.tests[0]
    builder.compile([program])
    built = builder.build(program)
    number = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) % 1_000_000
    measured = compare(built.path, number) if built.path else {"points": 0, "why": built.why}
    run.keep(key, seed, run.Result([measured]))
    return measured
