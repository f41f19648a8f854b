"""Made-up results and grades for the tests of the grader."""


from grader import course, programs, score
from grader.grade import Grade
from grader.run import Result

OUTCOMES = {"passed": (2, 0, 0), "failed": (0, 2, 0), "not started": (0, 0, 2)}


def result_of(task, outcome="passed", sentinel_fails=False):
    """Returns the Result of `check --json` if all tests of the task have this outcome."""
    tests, problems = [], {}
    for problem in task.problems + task.extensions:
        passed, failed, not_started = OUTCOMES[outcome]
        problems[problem.number] = {
            "number": problem.number,
            "passed": passed,
            "failed": failed,
            "not_started": not_started,
            "share": passed / 2,
            "explanation": "" if outcome == "passed" else "why",
        }
        for ranks in ("W1", "W2"):
            test = f"{problem.suites[0]}.says_so"
            tests.append({"test": test, "ranks": ranks, "outcome": outcome, "text": "why"})
    return Result(tests, problems=problems, sentinel_fails=sentinel_fails)


def scored(task, base, outcome="passed", sentinel_fails=False):
    result = result_of(task, outcome, sentinel_fails)
    return score.score_task(task, base, {"tests": result, "hidden": result})


def whole_grade(outcome="passed"):
    grade = Grade("ada", complete=True)
    for task in course.tasks():
        grade.scores[task.number] = [scored(task, base, outcome) for base in programs.BASES]
    grade.throughput = {"points": 5, "ratio": 1.01}
    grade.leaderboard = {"milliseconds": 2656.084, "peak": 58_797_920}
    return grade
