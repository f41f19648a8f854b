"""Measures a submission for the leaderboard."""

import hashlib
import pathlib
import shutil

from grader import course, leaderboard, programs, run
from grader.course import BUILD, Refused

# scripts/look.sh prints a remark with these words about code that could, for example, stop the
# clock. Such code costs no points, but is not measured for the leaderboard.
CHANGES = "it changes what is measured"


def of_submission(builder, grade, seed, fresh):
    """Measures a submission. Returns {"milliseconds": ..., "peak": ...}; {"why": ...} if the
    submission does not count; or {} if it has no leaderboard.toml. Requires that throughput was
    measured."""
    content = builder.submission.choices
    if content is None:
        return {}
    if "ratio" not in grade.throughput:
        return {"why": "the leaderboard needs a training that has points for throughput"}
    program = programs.training_program()
    key = program.key(builder.submission, builder.looked_at) + hashlib.sha256(content).hexdigest()
    known = None if fresh else run.kept(key, f"leaderboard {seed}")
    if known:
        return known.tests[0]
    builder.compile([program])
    if suspect := [note for note in builder.notes(program.tasks) if CHANGES in note]:
        return {"why": f"{suspect[0]}; the leaderboard takes no such code"}
    built = builder.build(program)
    measured = of_program(built.path, content, seed) if built.path else {"why": built.why}
    run.keep(key, f"leaderboard {seed}", run.Result([measured]))
    return measured


def of_program(program, content, seed):
    """Trains with the reference program in one process, and with the student's training program at
    the path `program` on ranks. Returns what of_submission() returns."""
    # reference_train is copied into the folder of `program`, because the user of the sandbox may
    # be unable to read build/.
    reference = pathlib.Path(shutil.copy(BUILD / "bin" / "reference_train", program.parent))
    number = int(hashlib.sha256(f"leaderboard {seed}".encode()).hexdigest()[:8], 16)

    def train_with(path):
        script = run.sandboxed(path, program.with_name(f"{path.name}_counted.sh"))
        seconds = course.rubric()["limits"]["leaderboard_seconds"]
        return lambda arguments: run.run([script, *arguments], None, seconds)

    try:
        ranks = leaderboard.measure(content, number, train_with(reference), train_with(program))
    except Refused as refused:
        return {"why": str(refused)}
    return {"milliseconds": ranks.milliseconds, "peak": ranks.peak}
