"""The reference solutions with a change, built and run as a submission is. A change is an entry of a
list: the lines `old` of a file become `new`, and `old_2`, if there are any, `new_2`."""

from grader import course, grade
from grader.course import Refused
from grader.programs import Program, build_programs, new_job
from grader.submission import Submission


def put_into(files, path, change):
    """`files`: path in tasks/ -> content."""
    for which in ("", "_2"):
        if f"old{which}" not in change:
            continue
        old, new = (change[f"{name}{which}"].encode() for name in ("old", "new"))
        count = files[path].count(old)
        if count != 1 or old == new or not old.strip():
            raise Refused(f"{change['name']}: its old lines are {count} times in {path}, or change nothing")
        files[path] = files[path].replace(old, new)


def solutions(path, change):
    files = course.task_files("solutions")
    put_into(files, path, change)
    return Submission(files, ())


def program(path, change, task, job):
    """The program of the tests of task `task` with the change, until the job ends."""
    wanted = Program(course.tasks()[task - 1], "reference")
    built = build_programs(solutions(path, change), [wanted], job)[wanted]
    if why := built.why or built.left_out:
        raise Refused(why)
    return built.path


def usual_result(submission, task, base="reference", fresh=False):
    """Of the usual tests of task `task`, over the reference solutions before it or over the submission's."""
    wanted = Program(course.tasks()[task - 1], base)
    with new_job() as job:
        ((_, _, found),) = grade.results(submission, "", job, [wanted], fresh, kinds=("tests",))
    if why := found.why or found.left_out:
        raise Refused(why)
    return found


def result(path, change, task, base="reference", fresh=False):
    """The same with the change. If the changed file is of an earlier task, the base is `own`."""
    return usual_result(solutions(path, change), task, base, fresh)


def failures(result):
    """What each test that does not pass prints, by its name and its ranks."""
    found = {}
    for test in result.tests:
        if test["outcome"] != "passed":
            found.setdefault(test["test"], {})[test["ranks"]] = test["text"]
    return found


def ranks_of(texts):
    """{"W1": ..., "W2": ..., "W4": ...} as "124", and "" for a test of one process."""
    return "".join(sorted(ranks.removeprefix("W") for ranks in texts))
