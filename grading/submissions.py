#!/usr/bin/env python3
"""Grades the submissions of honest_submissions.toml and of exploits.toml as the grader grades those
of students.

An honest submission must get all points of its task. An exploit must get no points, and the report
must say why; its grading must end in time, and must leave no process and no file behind. An exploit
is graded a second time without the inspection of the compiled code, to see what stops it then.
"""

import contextlib
import dataclasses
import pathlib
import subprocess
import sys

import changed
import lists
from grader import course, grade, sandbox, submission
from grader.course import ROOT, Refused
from grader.programs import new_job

# Bank, a TOML file -> the file of the course that its entries change if they name no `file`.
FILES = {
    "honest_submissions": "task3_forward_hooks/forward_hooks.cpp",
    "exploits": "task2_flat_parameter/flat_parameter.cpp",
}
# File of the course -> the line of its solution before which the code in an entry's field `use` is
# inserted.
PLACES = {
    "task2_flat_parameter/flat_layout.cpp": "  return layout;\n",
    "task3_forward_hooks/forward_hooks.cpp": "    unit->unshard();\n",
}


def load():
    return [{"file": file, "is_honest": name == "honest_submissions", **entry}
            for name, file in FILES.items() for entry in lists.load(f"{name}.toml")]


def task_of(entry):
    return next(task for task in course.tasks() if entry["file"] in task.files)


def files_of(entry):
    """Returns the files on which the result of the entry depends: the grader, scripts/look.sh and
    cmake/isolate.sh, which inspect the compiled code, and the solution of its task."""
    grader = [*(ROOT / "grading/grader").glob("*.py"), *(ROOT / "common/testing/judge").glob("*")]
    names = {str(path.relative_to(ROOT)) for path in grader}
    return names | {
        f"solutions/{entry['file']}",
        "grading/rubric.toml",
        "scripts/look.sh",
        "cmake/isolate.sh",
    }


def numbers_of(entry):
    """Returns the numbers of the tasks that are graded for this entry: its field `graded` or,
    without it, the task of its file."""
    return entry.get("graded", [task_of(entry).number])


def most_points(entry):
    return grade.most_points(grade.Grade("", tasks=tuple(numbers_of(entry))))


def changed_files(files, entry):
    """Returns `files` with those changes of the entry that are not only in its own file: its fields
    `changes` and `everywhere`. Leaves out the files of extensions if the entry has
    `begins_no_extension`."""
    files = {
        name: content
        for name, content in files.items()
        if not (entry.get("begins_no_extension") and submission.is_extension(name))
    }
    for change in entry.get("changes", ()):
        files[change["file"]] = changed.replaced(
            files[change["file"]].decode(), change, entry["name"]
        ).encode()
    for task in course.tasks() if "everywhere" in entry else ():
        for name in (name for name in list(files) if name in task.files):
            own = (
                entry["everywhere"].replace("{N}", str(task.number))
                if name == task.files[0]
                else ""
            )
            files[name] = files[name].replace(
                b"\nnamespace fsdp {", f"\n{own}\nnamespace fsdp {{".encode(), 1
            )
    return files


def handed_in(entry):
    """Returns the entry's Submission: the reference solutions, if the entry is honest or has
    `solved`, and otherwise the skeletons, with the entry's code."""
    file = entry["file"]
    solved = entry["is_honest"] or entry.get("solved")
    base = submission.read(ROOT / "solutions") if solved else submission.completed({})
    base = submission.completed(changed_files(base.files, entry))
    if "use" in entry:
        entry = {**entry, "old": PLACES[file], "new": f"{entry['use']}\n{PLACES[file]}"}
    text = changed.replaced(entry.get("whole", base.files[file].decode()), entry, entry["name"])
    text = text.replace(
        "\nnamespace fsdp {", f"\n{entry.get('before', '')}\nnamespace fsdp {{", 1
    ) + entry.get("after", "")
    content = text.encode()
    if entry.get("windows"):
        content = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")
    own = {name: text.encode() for name, text in entry.get("files", {}).items()}
    return dataclasses.replace(base, files={**base.files, file: content, **own})


def repository_status():
    return subprocess.run(["git", "-C", ROOT, "status", "--short"], capture_output=True).stdout


STATUS = repository_status()


def found_behind():
    """Yields what graded code has left behind: processes of the users as which it ran, files of
    these users in folders where every user may write, and changes in this repository."""
    for folder in ("/proc", "/tmp", "/var/tmp", "/dev/shm", ROOT):
        for path in pathlib.Path(folder).iterdir():
            with contextlib.suppress(OSError):  # the file may be removed meanwhile
                if path.lstat().st_uid in sandbox.given:
                    yield str(path)
    if repository_status() != STATUS:
        yield "changes in the repository"


def attempts(entries):
    """Yields each entry once for each of its gradings: one with the inspection of the compiled
    code, if the entry is honest or has `rejected`, and one without the inspection, if it has
    `stopped`. Adds to the entry `told`, the text that the grader must print, and `listed`, the
    entry's name in the bank."""
    for entry in ({**entry, "listed": entry["name"]} for entry in entries):
        if entry["is_honest"] or "rejected" in entry:
            yield {**entry, "looked_at": True, "told": entry.get("rejected", "")}
        if "stopped" in entry:
            yield {
                **entry,
                "looked_at": False,
                "told": entry["stopped"],
                "name": f"{entry['name']}, not looked at",
            }


def wrong(entry):
    """Grades the submission that an entry of honest_submissions.toml or exploits.toml describes.
    Yields what is wrong with the result of the grading."""
    with new_job() as job:
        graded = grade.grade(
            entry["name"],
            handed_in(entry),
            "submissions",
            job,
            fresh=True,
            only=numbers_of(entry),
            looked_at=entry["looked_at"],
        )
    own = tuple(f"tasks/{name} " for name in (entry["file"], *entry.get("files", ())))
    # Only notes about the entry's own files are compared, because scripts/look.sh has notes about
    # files of the reference solutions too.
    notes = "; ".join(note for note in graded.notes if note.startswith(own))
    left_out = next(
        (best.left_out for best in map(graded.best, graded.graded) if best.left_out), ""
    )
    said = "\n".join(text for scores in graded.scores.values() for score in scores
                     for text in (score.remark, *(problem.text for problem in score.problems)))
    yield from (f"left {what}" for what in found_behind())
    most = most_points(entry)
    if graded.points != (most if entry["is_honest"] else 0) or left_out:
        yield (
            f"has {graded.points:g} of {most:g} points: "
            f"{left_out or said.strip() or graded.throughput}"
        )
    if "seconds" in entry and graded.seconds > entry["seconds"]:
        yield f"takes {graded.seconds:.0f} s and not less than {entry['seconds']}"
    if entry["is_honest"] and (
        bool(notes) != ("remark" in entry) or entry.get("remark", "") not in notes
    ):
        yield f"the instructor reads '{notes}'"
    if entry["told"] not in said:
        yield f"does not get the words '{entry['told']}', but: {said[:300]}"


def main():
    arguments = lists.parser(__doc__).parse_args()
    entries = lists.chosen(list(attempts(load())), arguments, files_of, fixed=4, most=6)
    try:
        grade.prepare(sorted({number for entry in entries for number in numbers_of(entry)}))
    except Refused as refused:
        sys.exit(f"submissions: {refused}")
    print(f"graded code runs in: {sandbox.best_mode()}")
    lists.play(arguments, entries, lambda entry: "; ".join(wrong(entry)), files_of)


if __name__ == "__main__":
    main()
