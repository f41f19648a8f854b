"""Computes the points of a grade from the shares that ./fsdp check computes."""

import dataclasses

from grader.course import printable, rubric


@dataclasses.dataclass
class ProblemScore:
    """The score of one problem on one base. The base says with which earlier tasks the tests were
    linked: "own", the student's, or "reference", the reference solutions."""

    problem: object
    counts: dict  # "tests" and "hidden" -> (passed, failed, not started)
    points: dict  # "tests" and "hidden" -> (score, most)
    texts: dict  # "tests" and "hidden" -> the failure to show, or why no test was run

    @property
    def text(self):
        """The text about the problem that students may see: the failure of a usual test, or why no
        usual test was run. It says nothing about the hidden cases."""
        return self.texts["tests"]

    def with_hidden_of(self, other):
        """Returns a copy of this score in which the counts, points and texts of the hidden cases
        are those of `other`."""
        counts, points, texts = (
            {"tests": mine["tests"], "hidden": its["hidden"]}
            for mine, its in (
                (self.counts, other.counts),
                (self.points, other.points),
                (self.texts, other.texts),
            )
        )
        return ProblemScore(self.problem, counts, points, texts)


@dataclasses.dataclass
class TaskScore:
    task: object
    base: str
    problems: list
    outcomes: dict  # test -> whether it passes on every number of ranks, also in hidden cases
    remark: str = ""  # a remark about the whole task
    why: str = ""  # why no test of the task was run
    # (Problem, points) of each extension; these points are not part of `points`.
    extensions: list = dataclasses.field(default_factory=list)
    left_out: str = ""  # why extensions are graded as if they were not handed in
    base_of_hidden: str = ""  # set by better(): the base whose hidden cases count
    reasons: tuple = ()  # set by better(): why no test was run, on each base
    not_begun: frozenset = frozenset()  # the numbers of the extensions that are not begun

    @property
    def points(self):
        return sum(score for problem in self.problems for score, _ in problem.points.values())

    def points_of(self, kind):
        """Returns the task's points for one kind: "tests" (the usual tests) or "hidden" (the hidden
        cases)."""
        return round(sum(problem.points[kind][0] for problem in self.problems), 2)

    @property
    def usual_points(self):
        """The task's points without those of the hidden cases."""
        return self.points_of("tests")

    @property
    def tests(self):
        """How many of the task's usual tests passed, and how many ran."""
        counts = [problem.counts["tests"] for problem in self.problems]
        passed = sum(count[0] for count in counts)
        return passed, passed + sum(count[1] for count in counts)


def most_usual_points(task):
    return round(sum(parts(problem)["tests"] for problem in task.problems), 2)


def parts(problem):
    """Returns how the problem's points are divided: {"tests": points of the usual tests, "hidden":
    points of the hidden cases}."""
    hidden = problem.points * rubric()["hidden"]
    return {"tests": problem.points - hidden, "hidden": hidden}


def counts_of(found):
    """Returns (passed, failed, not started). `found`: a problem in the form of `check --json`; None
    if no test was run."""
    names = ("passed", "failed", "not_started")
    return tuple(found[name] for name in names) if found else (0, 0, 0)


def shortened(text):
    lines = [line for line in printable(text[:20_000]).splitlines() if line.strip()]
    return "\n".join(lines[:60])[:6000]


def points_of(number, most, result, held):
    """Returns the points of problem `number`, at most `most`. If `held`, the problem gets no
    points: the task's sentinel (the test that measures whether the task saves memory) fails, or the
    problem is an extension that the student has not begun."""
    found = result.problems.get(number)
    return round(most * found["share"], 2) if found and not held else 0.0


def score_problem(problem, results, held):
    """Returns the ProblemScore. `results`: kind ("tests", "hidden") -> Result, in which `check` has
    computed the share of the points. `held`: as in points_of()."""
    counts, points, texts = {}, {}, {}
    for kind, most in parts(problem).items():
        found = results[kind].problems.get(problem.number)
        counts[kind] = counts_of(found)
        points[kind] = (points_of(problem.number, most, results[kind], held), most)
        texts[kind] = shortened(results[kind].why or (found["explanation"] if found else ""))
        if found and found["failed"] and results[kind].stopped:
            texts[kind] += "\nA rank ends if this runs: " + shortened(
                "\n".join(results[kind].stopped)
            )
    return ProblemScore(problem, counts, points, texts)


def outcomes(results):
    found = {}
    for result in results.values():
        for test in result.tests:
            found[test["test"]] = found.get(test["test"], True) and test["outcome"] == "passed"
    return found


def score_task(task, base, results, not_begun=()):
    """Returns the TaskScore. `results`: kind ("tests", "hidden") -> Result of the task on this
    base. If the sentinel (the test that measures whether the task saves memory) fails in the usual
    tests, the hidden cases get no points either. `not_begun`: the numbers of the extensions that
    the student has not begun; they get no points, even if tests pass."""
    held = results["tests"].sentinel_fails
    problems = [score_problem(problem, results, held) for problem in task.problems]
    score = TaskScore(task, base, problems, outcomes(results), why=results["tests"].why,
                      left_out=shortened(results["tests"].left_out), not_begun=frozenset(not_begun))
    for problem in task.extensions:  # extensions have only usual tests, no hidden cases
        points = points_of(
            problem.number, problem.points, results["tests"], held or problem.number in not_begun
        )
        score.extensions.append((problem, points))
    if held and any(counts[0] for p in problems for counts in p.counts.values()):
        score.remark = (
            "This task's points count as soon as the following test passes, in tasks 2 to 7 on "
            "two or more "
            "ranks. It measures whether a rank holds less memory than the whole takes, and cannot "
            "measure "
            f"ranks that stop early: {task.sentinel}"
        )
    return score


def better(scores):
    """Returns the score that counts, made from the scores on both bases: the usual tests of the
    score with the most points in usual tests, and the hidden cases of the score with the most
    points in hidden cases. The two are chosen independently, so what a student sees does not depend
    on hidden cases. If points are equal, the score with more passed tests is used, then the one
    with more tests run, because it is more useful to the student, then the one on the student's own
    tasks."""
    usual, hidden = (
        max(scores, key=lambda score: (score.points_of(kind), *score.tests, score.base == "own"))
        for kind in ("tests", "hidden")
    )
    problems = [one.with_hidden_of(other) for one, other in zip(usual.problems, hidden.problems)]
    reasons = tuple(
        dict.fromkeys(
            one.why for one in sorted(scores, key=lambda one: one is not usual) if one.why
        )
    )
    return dataclasses.replace(
        usual, problems=problems, base_of_hidden=hidden.base, reasons=reasons
    )
