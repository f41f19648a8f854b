"""From results of tests to points."""

import dataclasses

from grader.course import rubric


@dataclasses.dataclass
class ProblemScore:
    """On one base."""

    problem: object
    counts: dict  # "tests" and "hidden" -> (passed, failed, not started)
    points: dict  # "tests" and "hidden" -> (score, most)
    text: str  # the first failure, as a story, or why nothing was run


@dataclasses.dataclass
class TaskScore:
    task: object
    base: str
    problems: list
    outcomes: dict  # test -> whether it passes on every number of ranks, hidden ones too
    remark: str = ""  # about the whole task

    @property
    def points(self):
        return sum(score for problem in self.problems for score, _ in problem.points.values())


def parts(problem):
    """How the problem's points are divided."""
    hidden = problem.points * rubric()["hidden"]
    return {"tests": problem.points - hidden, "hidden": hidden}


def of_problem(problem, tests):
    return [test for test in tests if test["suite"] in problem.suites]


def count(tests):
    return tuple(
        sum(test["outcome"] == outcome for test in tests)
        for outcome in ("passed", "failed", "not started")
    )


def name_of(test):
    """Of the test, whatever the number of ranks."""
    return f"{test['suite']}.{test['name'].partition('/')[0]}"


def telling(tests):
    """The first test that failed, on the fewest ranks but not on one, if there is a choice."""
    failed = [test for test in tests if test["outcome"] == "failed"]
    if not failed:
        return None
    same = [test for test in failed if name_of(test) == name_of(failed[0])]
    return next((test for test in same if not test["name"].endswith("/W1")), same[0])


def story(tests):
    test = telling(tests)
    if test is None:
        waiting = [t["text"] for t in tests if t["outcome"] == "not started"]
        return f"not started: {waiting[0]}" if waiting else ""
    lines = [line for line in test["text"].splitlines() if line.strip() not in ("", "Failed")]
    text = "\n".join(lines[:60])[:6000]
    return f"{test['suite']}.{test['name']}\n{text}"


def sentinel_fails(task, tests):
    return any(test["outcome"] != "passed" for test in tests if name_of(test) == task.sentinel)


def score_problem(problem, results, held):
    """`results`: kind -> Result."""
    counts, points, texts = {}, {}, []
    for kind, most in parts(problem).items():
        tests = of_problem(problem, results[kind].tests)
        counts[kind] = count(tests)
        share = counts[kind][0] / len(tests) if tests and not held else 0
        points[kind] = (round(most * share, 2), most)
        texts.append((kind, results[kind].why or story(tests)))
    visible, hidden = (text for _, text in texts)
    return ProblemScore(problem, counts, points, visible or hidden)


def outcomes(task, results):
    found = {}
    for result in results.values():
        for problem in task.problems:
            for test in of_problem(problem, result.tests):
                name = name_of(test)
                found[name] = found.get(name, True) and test["outcome"] == "passed"
    return found


def score_task(task, base, results):
    """`results`: kind ("tests", "hidden") -> Result of the task on this base."""
    fails = sentinel_fails(task, results["tests"].tests)
    problems = [score_problem(problem, results, fails) for problem in task.problems]
    score = TaskScore(task, base, problems, outcomes(task, results))
    if fails and any(counts[0] for p in problems for counts in p.counts.values()):
        score.remark = (
            f"What shards nothing earns nothing: points count once this passes: {task.sentinel}"
        )
    return score


def better(scores):
    """Of a task's scores on the bases; the student's own stack where they are equal."""
    return max(scores, key=lambda score: (score.points, score.base == "own"))
