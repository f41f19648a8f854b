"""Grades one submission."""

import dataclasses
import time

from course import skeletons
from grader import course, run, sandbox, score, throughput
from grader.course import BUILD, Refused
from grader.programs import BASES, all_programs, build, build_programs

KINDS = ("tests", "hidden")
HELD = "not run: no point of this task counts before its sentinel passes, which is one of its usual tests"


@dataclasses.dataclass
class Grade:
    """What is known of a submission so far."""

    name: str
    refused: str = ""  # why nothing was graded
    missing: tuple = ()
    ignored: tuple = ()
    scores: dict = dataclasses.field(default_factory=dict)  # task number -> [TaskScore, one a base]
    throughput: dict = dataclasses.field(default_factory=dict)
    seconds: float = 0  # that it took, whenever that was
    usual_seconds: float = 0  # without the hidden cases
    complete: bool = False

    def best(self, task):
        return score.better(self.scores[task.number]) if self.scores.get(task.number) else None

    @property
    def points(self):
        tests = sum(self.best(task).points for task in course.tasks() if self.best(task))
        return round(tests + self.throughput.get("points", 0), 2)

    @property
    def usual_points(self):
        """What a student may see before the hidden cases are shown."""
        tests = sum(self.best(task).usual_points for task in course.tasks() if self.best(task))
        return round(tests + self.throughput.get("points", 0), 2)

    @property
    def remark(self):
        """Why the whole or a task was not run, as one line."""
        found = [self.refused] if self.refused else []
        for task in course.tasks():
            best = self.best(task)
            if best and best.why:
                words = best.why.removeprefix("is not run: ").splitlines()
                kind = "refused" if best.why.startswith("is not run: ") else words.pop(0).rstrip(":")
                found.append(f"task {task.number} {kind}: {' '.join(words)[:200]}".rstrip(": "))
        return course.one_line("; ".join(found))

    @property
    def extensions(self):
        """(Problem, points) of each extension, which count in no sum of the course."""
        return [found for task in course.tasks() if self.best(task) for found in self.best(task).extensions]

    @property
    def extension_points(self):
        return round(sum(points for _, points in self.extensions), 2)


def most_points():
    return sum(task.points for task in course.tasks()) + course.rubric()["throughput"]["points"]


def most_usual_points():
    tests = sum(map(score.most_usual_points, course.tasks()))
    return round(tests + course.rubric()["throughput"]["points"], 2)


def most_extension_points():
    return sum(problem.points for task in course.tasks() for problem in task.extensions)


def prepare(only=None):
    """Builds what is the grader's own: for the tasks with these numbers, or all."""
    changed = list(skeletons.differences(skeletons.delivered()))
    if changed:
        raise Refused(f"tasks/ of the grader is not as at first: {changed[0]}; grade from a clean copy")
    numbers = only or [task.number for task in course.tasks()]
    trainer = [] if only else ["reference_train", "mine_train"]
    build("check", "confine", *trainer, *(f"mine_task{number}_tests" for number in numbers))
    sandbox.require_that_tests_run(BUILD / "bin" / f"mine_task{numbers[0]}_tests")
    sandbox.require_that_compilers_run()


def results(submission, seed, job, wanted, fresh=False, looked_at=True, on_step=None, kinds=KINDS):
    """Yields (program, kind, result) of each program of `wanted`: first what is known, then what it builds
    and runs. `on_step`: as of programs.ninja()."""
    seeds = {"tests": "", "hidden": seed}
    missing, held = [], set()  # programs of whose hidden cases no point counts
    for program in wanted:
        key = program.key(submission, looked_at)
        for kind in kinds:
            known = None if fresh else run.kept(key, seeds[kind])
            if not known and kind == "hidden" and program in held:
                known = run.Result([], HELD)
            if not known:
                missing.append((program, kind, key))
                continue
            if known.sentinel_fails:
                held.add(program)
            yield program, kind, known
    if not missing:
        return
    started = time.monotonic()
    built = build_programs(submission, {program for program, _, _ in missing}, job, looked_at, on_step)
    building = (time.monotonic() - started) / len(missing)
    for program, kind, key in missing:
        made = built[program]
        if made.path and kind == "hidden" and program in held:
            yield program, kind, run.Result([], HELD)
            continue
        if made.path:
            result = run.run_tests(made.path, program.task, seeds[kind], job)
        else:
            result = run.Result([], made.why)
        result.left_out = made.left_out
        result.seconds += building
        run.keep(key, seeds[kind], result)
        if result.sentinel_fails:
            held.add(program)
        yield program, kind, result


def grade(name, submission, seed, job, fresh=False, on_progress=lambda grade: None, only=None,
          looked_at=True, on_step=None):
    """`job`: of programs.new_job(), for this submission alone. `on_progress` is called whenever more is
    known. `only`: the numbers of the tasks to grade. `looked_at`: whether code that objects.py refuses
    is not run. `on_step`: as of programs.ninja()."""
    done = Grade(name, missing=submission.missing, ignored=submission.ignored)
    found = {}  # (base, task number) -> kind -> Result
    wanted = [p for p in all_programs() if only is None or p.task.number in only]
    for program, kind, result in results(submission, seed, job, wanted, fresh, looked_at, on_step):
        task = program.task
        done.seconds += result.seconds
        done.usual_seconds += result.seconds if kind == "tests" else 0
        for base in BASES if task.number == 1 else [program.base]:
            known = found.setdefault((base, task.number), {})
            known[kind] = result
            if len(known) == len(KINDS):
                done.scores.setdefault(task.number, []).append(score.score_task(task, base, known))
        on_progress(done)
    done.throughput = throughput.measure(submission, done, seed, job, fresh)
    done.seconds += done.throughput.get("seconds", 0)
    done.usual_seconds += done.throughput.get("seconds", 0)
    done.complete = True
    on_progress(done)
    return done
