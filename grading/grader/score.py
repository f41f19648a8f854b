"""From the shares that `check` computes to the points of a grade."""

import dataclasses

from grader.course import printable, rubric


@dataclasses.dataclass
class ProblemScore:
    """Of one problem on one base."""

    problem: object
    counts: dict  # "tests" and "hidden" -> (passed, failed, not started)
    points: dict  # "tests" and "hidden" -> (score, most)
    texts: dict  # "tests" and "hidden" -> the failure to show, or why nothing was run

    @property
    def text(self):
        """Without a word of the hidden cases."""
        return self.texts["tests"]

    def with_hidden_of(self, other):
        """With the other's hidden cases in the place of its own."""
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
    outcomes: dict  # test -> whether it passes on every number of ranks, hidden ones too
    remark: str = ""  # about the whole task
    why: str = ""  # no test of it was run
    # (Problem, points), outside `points`.
    extensions: list = dataclasses.field(default_factory=list)
    left_out: str = ""  # why extensions are graded as if they were not handed in
    base_of_hidden: str = ""  # as `base`, of better()
    reasons: tuple = ()  # why no test was run, of either base, of better()
    not_begun: frozenset = frozenset()  # the numbers of extensions

    @property
    def points(self):
        return sum(score for problem in self.problems for score, _ in problem.points.values())

    def points_of(self, kind):
        """`kind`: "tests" or "hidden"."""
        return round(sum(problem.points[kind][0] for problem in self.problems), 2)

    @property
    def usual_points(self):
        """Without those of the hidden cases."""
        return self.points_of("tests")

    @property
    def tests(self):
        """How many of the usual tests passed, and how many ran."""
        counts = [problem.counts["tests"] for problem in self.problems]
        passed = sum(count[0] for count in counts)
        return passed, passed + sum(count[1] for count in counts)


def most_usual_points(task):
    return round(sum(parts(problem)["tests"] for problem in task.problems), 2)


def parts(problem):
    """How the problem's points are divided."""
    hidden = problem.points * rubric()["hidden"]
    return {"tests": problem.points - hidden, "hidden": hidden}


def counts_of(found):
    """`found`: a problem as `check --json` has it; None if nothing was run."""
    names = ("passed", "failed", "not_started")
    return tuple(found[name] for name in names) if found else (0, 0, 0)


def shortened(text):
    lines = [line for line in printable(text[:20_000]).splitlines() if line.strip()]
    return "\n".join(lines[:60])[:6000]


def points_of(number, most, result, held):
    """`held`: the sentinel keeps back the points of the task."""
    found = result.problems.get(number)
    return round(most * found["share"], 2) if found and not held else 0.0


def score_problem(problem, results, held):
    """`results`: kind -> Result. What share of the tests passed is for `check` to say."""
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
    """`not_begun`: the numbers of extensions that have no points, whatever passes without them.
    `results`: kind ("tests", "hidden") -> Result of the task on this base. The sentinel of the
    usual tests decides about the hidden ones too."""
    held = results["tests"].sentinel_fails
    problems = [score_problem(problem, results, held) for problem in task.problems]
    score = TaskScore(task, base, problems, outcomes(results), why=results["tests"].why,
                      left_out=shortened(results["tests"].left_out), not_begun=frozenset(not_begun))
    for problem in task.extensions:  # of the usual tests alone: they have no hidden cases
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
    """The best of a task's scores by the usual tests, with the hidden cases of the one that is best
    by these: so what a student sees tells nothing of hidden cases. Where points are equal, the one
    of which more tests pass, then of which more run: it tells a student most; then the one over the
    student's own tasks."""
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
