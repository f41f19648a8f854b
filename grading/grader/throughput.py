"""Measures the speed of training with the student's seven tasks and with the reference solutions:
the grader runs the two programs in turns and measures their wall time. A run counts only if it ends
with the reference's parameters. The seed of the training is not known to students before."""

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
    parameters: str = ""  # the first digits of the SHA-256 of all parameters
    why: str = ""  # why the training failed


def train(script, seed):
    """Trains once. Returns a Training: the seconds and the hash of all parameters, or why the
    training failed. `script`: the path of a script of run.sandboxed(), which runs a training
    program in a sandbox."""
    settings = rubric()["throughput"]["train"]
    command = [script, *settings, "--recipe", "published", "--seed", str(seed)]
    started = time.monotonic()
    status, text = run.run(command, None, rubric()["limits"]["train_seconds"])
    if status is None:
        return Training(why="training did not end in time")
    seconds = time.monotonic() - started
    # Graded code can print a forged result line to the same output, but can't prevent the program
    # from printing its own line, so a forged line makes the number of lines wrong.
    parameters = re.findall(r"(?m)^.*sha256 (\w+)", text)
    if status != 0 or not parameters:
        return Training(why="training failed: " + text.strip()[-500:])
    if len(parameters) > 1:
        return Training(why="training prints its result more than once")
    return Training(seconds, parameters[0])


def compare(program, seed):
    """Trains with the reference and with the student's `program` in turns. Returns `points` and
    `ratio`, the student's fastest time divided by the reference's, or no points and the reason
    `why`."""
    turns = []
    # reference_train is copied into the folder of `program`, because the user of the sandbox may
    # be unable to read build/.
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
    """Returns `points` and, if training was possible, `ratio`, the student's time divided by the
    reference's. Trains only if the last task has all points of its usual tests on the student's own
    tasks. Hidden cases do not decide, because students see whether training was possible, and
    nothing that they see may depend on hidden cases."""
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
