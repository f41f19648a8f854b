"""Grades one submission: runs its tests and collects the results in a Grade."""

import dataclasses
import time

from course import skeletons
from grader import compiling, course, leaderboard_entry, run, sandbox, score, throughput
from grader.course import BUILD, Refused
from grader.programs import BASES, EARLIER, Builder, all_programs, build

KINDS = ("tests", "hidden")
HELD = (
    "not run: no point of this task counts before its sentinel passes, which is one of its usual "
    "tests"
)


@dataclasses.dataclass
class Grade:
    """The results of the grading of a submission until now."""

    name: str
    refused: str = ""  # why nothing was graded
    missing: tuple = ()
    ignored: tuple = ()
    changed: tuple = ()  # headers of the course that the student has changed
    # Task number -> list of TaskScore: one with the task linked with the student's own earlier
    # tasks (base "own") and one with the reference solutions of the earlier tasks (base
    # "reference").
    scores: dict = dataclasses.field(default_factory=dict)
    throughput: dict = dataclasses.field(default_factory=dict)
    # The result of leaderboard_entry.of_submission(): the leaderboard's numbers, or why they do not
    # count.
    leaderboard: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0  # wall time until now
    usual_seconds: float = 0  # wall time without the time in which hidden cases ran
    known: int = 0  # number of results kept from an earlier grading
    # For the instructor: findings of scripts/look.sh in the compiled code that cost no points.
    notes: tuple = ()
    complete: bool = False
    seed: str = ""  # seed of the hidden cases
    tasks: tuple = ()  # numbers of the tasks to grade; empty: all

    @property
    def graded(self):
        """The tasks of the course that are graded, from the task numbers in `tasks`."""
        return [task for task in course.tasks() if not self.tasks or task.number in self.tasks]

    @property
    def trains(self):
        """Returns whether the throughput of training is graded; it belongs to the last task."""
        return course.tasks()[-1] in self.graded

    def best(self, task):
        return score.better(self.scores[task.number]) if self.scores.get(task.number) else None

    @property
    def points(self):
        tests = sum(self.best(task).points for task in course.tasks() if self.best(task))
        return round(tests + self.throughput.get("points", 0), 2)

    @property
    def usual_points(self):
        """The points that a student may see before the hidden cases are shown: all points but those
        of hidden cases."""
        tests = sum(self.best(task).usual_points for task in course.tasks() if self.best(task))
        return round(tests + self.throughput.get("points", 0), 2)

    @property
    def remark(self):
        """Returns one line on why the submission, or some of its tasks, were not run; "" if all
        were."""
        found = [self.refused] if self.refused else []
        for task in course.tasks():
            best = self.best(task)
            for why in best.reasons if best and best.why else ():
                words = why.removeprefix("is not run: ").splitlines()
                kind = "refused" if why.startswith("is not run: ") else words.pop(0).rstrip(":")
                if (
                    EARLIER in why
                    and 1 < task.number
                    and any(told.startswith("task") for told in found)
                ):
                    continue  # the reason is reported for the earlier task
                found.append(f"task {task.number} {kind}: {' '.join(words)}".rstrip(": "))
        return course.one_line("; ".join(dict.fromkeys(found)))

    @property
    def extensions(self):
        """Returns (Problem, points) of each extension. These points count in no total."""
        return [
            found
            for task in course.tasks()
            if self.best(task)
            for found in self.best(task).extensions
        ]

    @property
    def extension_points(self):
        return round(sum(points for _, points in self.extensions), 2)


def most_points(grade=None):
    """Returns the highest possible points of the tasks that `grade` grades; without `grade`, of the
    whole course. Points of extensions are not included."""
    grade = grade or Grade("")
    trains = course.rubric()["throughput"]["points"] if grade.trains else 0
    return sum(task.points for task in grade.graded) + trains


def most_usual_points(grade=None):
    grade = grade or Grade("")
    trains = course.rubric()["throughput"]["points"] if grade.trains else 0
    return round(sum(map(score.most_usual_points, grade.graded)) + trains, 2)


def most_extension_points(grade=None):
    return sum(
        problem.points for task in (grade or Grade("")).graded for problem in task.extensions
    )


def prepare(only=None):
    """Builds the grader's own programs for the tasks whose numbers are in `only`, or for all tasks.
    Raises Refused if tasks/ of the grader's copy was changed, or if the sandbox does not work."""
    changed = list(skeletons.differences(skeletons.delivered()))
    if changed:
        raise Refused(
            f"tasks/ in the grader's copy was changed: {changed[0]}; grade from a clean copy"
        )
    numbers = only or [task.number for task in course.tasks()]
    # The program mine_taskN_tests is the judge of task N: it contains the tests, runs no graded
    # code, and compares what the ranks of a graded program report. The libraries of the reference
    # solutions are linked with a student's task in place of the student's earlier tasks.
    below = [f"reference_task{number - 1}" for number in numbers if number > 1] if only else []
    below += ["reference_train"] if course.tasks()[-1].number in numbers else []
    build("check", *below, *(f"mine_task{number}_tests" for number in numbers))
    compiling.KEPT.mkdir(mode=0o711, exist_ok=True)
    sandbox.require_that_tests_run(BUILD / "bin" / f"mine_task{numbers[0]}_tests")
    compiling.require_that_compilers_run()
    compiling.remove_old()


def results(builder, seed, wanted, fresh=False, on_step=None, kinds=KINDS):
    """Yields (program, kind, result, whether the result was kept from an earlier grading) for each
    program of `wanted`: first the kept results, then the results of the programs that it builds and
    runs. Calls on_step("3/25") while it compiles."""
    seeds, patience = {"tests": "", "hidden": seed}, run.Patience()
    missing, held = [], set()  # held: the programs whose sentinel fails
    for program in wanted:
        key = program.key(builder.submission, builder.looked_at)
        for kind in kinds:
            known = None if fresh else run.kept(key, seeds[kind])
            if not known and kind == "hidden" and program in held:
                known = run.Result([], HELD)
            if not known:
                missing.append((program, kind, key))
                continue
            if known.sentinel_fails:
                held.add(program)
            patience.add(dataclasses.replace(known, seconds=0))
            yield program, kind, known, True
    if not missing:
        return
    builder.compile(dict.fromkeys(program for program, _, _ in missing), on_step)
    built = {}
    for program, kind, key in missing:
        if program not in built:
            built[program] = builder.build(program)
        made = built[program]
        if made.path and kind == "hidden" and program in held:
            yield program, kind, run.Result([], HELD), False
            continue
        if made.path:
            result = run.run_tests(made.path, program.task, seeds[kind], patience)
        else:
            result = run.Result([], made.why)
        result.left_out = made.left_out
        result.notes, result.stopped = builder.notes(program.tasks), builder.stopped(program.task)
        run.keep(key, seeds[kind], result)
        if result.sentinel_fails:
            held.add(program)
        yield program, kind, result, False


def grade(name, submission, seed, job, fresh=False, on_progress=lambda grade: None, only=None,
          looked_at=True, on_step=None):
    """Grades a submission and returns its Grade.

    `job`: a folder of programs.new_job(), for only this submission. `on_progress` is called with
    the Grade after each new result. `only`: the numbers of the tasks to grade; None: all.
    `looked_at`: if true, code that scripts/look.sh rejects is not run. `on_step` is called as
    results() does."""
    started, hidden = time.monotonic(), 0
    done = Grade(
        name,
        missing=submission.missing,
        ignored=submission.ignored,
        changed=submission.changed,
        seed=seed,
        tasks=tuple(only or ()),
    )
    notes = {}  # a dict used as an ordered set
    builder = Builder(submission, job, looked_at)
    found = {}  # (base, task number) -> kind -> Result
    wanted = [p for p in all_programs() if only is None or p.task.number in only]

    def tell():
        done.notes = tuple(notes)
        done.seconds = time.monotonic() - started
        done.usual_seconds = done.seconds - hidden
        on_progress(done)

    for program, kind, result, known in results(builder, seed, wanted, fresh, on_step):
        task = program.task
        notes.update(dict.fromkeys(result.notes))
        done.known += known
        hidden += result.seconds if kind == "hidden" and not known else 0
        for base in BASES if task.number <= 1 else [program.base]:
            of_base = found.setdefault((base, task.number), {})
            of_base[kind] = result
            if len(of_base) == len(KINDS):
                done.scores.setdefault(task.number, []).append(
                    score.score_task(task, base, of_base, submission.not_begun(task)))
        tell()
    if done.trains:
        done.throughput = throughput.measure(builder, done, seed, fresh)
        done.leaderboard = leaderboard_entry.of_submission(builder, done, seed, fresh)
    done.complete = True
    tell()
    return done
