#!/usr/bin/env python3
"""submit.py OUT.zip [RESULTS REFUSED]: makes the zip to hand in. The grader's code selects the
files of the zip and reads the zip again.

RESULTS is the file that check --json has written. REFUSED is a file with a line for everything that
costs points. Without these two arguments, the program only checks that the zip can be made.
"""

import json
import pathlib
import sys
import zipfile

from course import skeletons
from grader import submission
from grader.course import ROOT, Refused

NOTE = b"made by ./fsdp submit"
WRITEUP = "tasks/WRITEUP.md"


def collect(root=ROOT):
    """Returns two values: a dict, path in the zip -> content; and a list of lines about the files
    of tasks/ that the grader will not use."""
    given = skeletons.delivered(root)
    headers = {name for name in given if not name.endswith(".cpp")}
    files = {
        f"tasks/{name}": content
        for name, content in submission.read_folder(root, "tasks")[0].items()
    }
    sources = {path.relative_to(root).as_posix() for path in (root / "tasks").rglob("[!.]*")
               if path.suffix in (".cpp", *submission.HEADERS, *submission.OTHER_SOURCES)}
    remarks = [
        f"{name} is not taken: the grader takes .cpp files directly in a task's folder, and "
        f"headers under it"
        for name in sorted(sources - files.keys())
    ]
    remarks += [
        f"{name} is missing: the grader takes its first state"
        for name in sorted(given.keys() - headers - files.keys())
    ]
    remarks += [f"{name} is changed: the grader takes the course's copy of this header"
                for name in sorted(headers & files.keys()) if files[name] != given[name]]
    if (root / WRITEUP).is_file():
        files[WRITEUP] = (root / WRITEUP).read_bytes()
    return {name: files[name] for name in sorted(files.keys() - headers)}, remarks


def check_place(out, root=ROOT):
    """Raises Refused if the zip can't be written to `out`, or if `out` exists and is not a zip of
    this program."""
    if (
        out.suffix != ".zip"
        or not out.parent.is_dir()
        or (root / "tasks").resolve() in out.resolve().parents
    ):
        raise Refused(f"{out}: name a file OUT.zip in a folder that exists, outside of tasks/")
    if (out.exists() or out.is_symlink()) and not (
        zipfile.is_zipfile(out) and zipfile.ZipFile(out).comment == NOTE
    ):
        raise Refused(f"{out} exists, and ./fsdp submit has not made it: choose another name")


def write(out, files):
    """Writes the zip, completely or not at all. The same files give the same bytes."""
    part = out.with_name(out.name + ".part")
    with zipfile.ZipFile(part, "w") as archive:
        archive.comment = NOTE
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # time 1980
    read = {f"tasks/{name}": content for name, content in submission.read_zip(part)[0].items()}
    if read != {name: content for name, content in files.items() if name != WRITEUP}:
        raise Refused(
            f"{part}: the grader reads other files from it; this is a bug of ./fsdp submit"
        )
    part.replace(out)


def main(out, results=None, refused=None):
    try:
        check_place(out)
        files, remarks = collect()
        if not results:
            return
        write(out, files)
        points = json.loads(results.read_text())
    except (OSError, Refused) as error:
        sys.exit(f"fsdp submit: {error}")
    points, more = (
        f"{part['points']:.1f} of {part['possible']:.0f}" for part in (points, points["extensions"])
    )
    print(
        "",
        *remarks,
        f"{out}: {len(files)} files; points {points}, extensions {more}, by the tests of ./fsdp "
        f"check",
        sep="\n",
        flush=True,
    )
    if lines := refused.read_text().splitlines():
        sys.exit("\n  ".join(("The grader gives no points for what is wrong here:", *lines)))
    print("The grader takes all of it.")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
