#!/usr/bin/env python3
"""Makes a class to try the grader with: FOLDER with twelve submissions, from complete to broken, and
says what each should get. `./fsdp grade --all FOLDER` grades it."""

import argparse
import pathlib
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import exploits  # noqa: E402
import faults  # noqa: E402
from grader import changed, course  # noqa: E402
from grader.course import ROOT  # noqa: E402


def first(count):
    """The solutions of tasks 1 to `count`, the rest not written."""
    written = course.task_files("solutions")
    begun = {name for task in course.tasks()[:count] for name in task.files}
    return {name: written[name] if name in begun else blank for name, blank in course.blank().items()}


def with_faults(*names):
    files = course.task_files("solutions")
    for fault in faults.load():
        if fault["name"] in names:
            changed.put_into(files, faults.path_of(fault), fault)
    return files


def that_does_not_compile():
    files = course.task_files("solutions")
    files["task3_forward_hooks/forward_hooks.cpp"] += b"\nint forgotten = nothing;\n"
    return files


def exploit(name):
    return exploits.submission(next(e for e in exploits.load() if e["name"] == name)).files


def only(files, task):
    return {name: files[name] for name in course.tasks()[task - 1].files}


def submissions():
    """Name -> (files, whether as a zip, what it should get)."""
    return {
        "ada": (course.task_files("solutions"), False, "all points"),
        "ben": (first(0), False, "0: nothing is written"),
        "cleo": (course.other_solution("second"), True, "all points"),
        "dan": (first(3), False, "tasks 1 to 3"),
        "eve": (first(5), True, "tasks 1 to 5"),
        "finn": (with_faults("no_gaps_between_parameters"), False, "all but task 2"),
        "gus": (with_faults("sum_not_mean"), True, "all but a part of task 2"),
        "hana": (that_does_not_compile(), False, "all but task 3, over the reference"),
        "iris": (exploit("leaves_early"), False, "0: it uses exit"),
        "jon": (exploit("loops_for_ever"), False, "0: it does not end"),
        "kim": (only(course.task_files("solutions"), 2), True, "task 2; the rest was not handed in"),
        "leo": (None, True, "0: a zip that can't be read"),
    }


def write(folder, name, files, as_zip):
    if files is None:
        (folder / f"{name}.zip").write_bytes(b"PK\3\4 torn")
    elif as_zip:
        with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in files.items():
                archive.writestr(f"course-{name}/tasks/{path}", content)
    else:
        for path, content in files.items():
            file = folder / name / "tasks" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    if folder.exists():
        sys.exit(f"sample_class: {folder} is there already")
    folder.mkdir(parents=True)
    for name, (files, as_zip, expected) in submissions().items():
        write(folder, name, files, as_zip)
        print(f"{name:6} {expected}")


if __name__ == "__main__":
    main()
