#!/usr/bin/env python3
"""Makes the zip to hand in. The code of the grader chooses what is in it, and reads the zip before it is in place.

Without --checked it only refuses what can't become a zip: this needs no build.
"""

import argparse
import io
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
    """Member of the zip -> content; and lines on what is in tasks/ and not in the zip."""
    given = skeletons.delivered(root)
    taken = {f"tasks/{name}": content for name, content in submission.read_folder(root, "tasks")[0].items()}
    sources = (path.relative_to(root).as_posix() for path in sorted((root / "tasks").rglob("[!.]*"))
               if path.suffix in (".cpp", *submission.HEADERS, *submission.OTHER_SOURCES))
    remarks = [f"{name} is not in the zip: the grader takes .cpp files directly in a task's folder, and headers under it"
               for name in sources if name not in taken]
    remarks += [f"{name} is missing: the grader takes its first state" for name in given
                if name.endswith(".cpp") and name not in taken]
    headers = {name for name in given if not name.endswith(".cpp")}
    remarks += [f"{name} is changed: the grader takes the course's copy of this header"
                for name in sorted(headers & taken.keys()) if taken[name] != given[name]]
    files = {name: content for name, content in taken.items() if name not in headers}
    if (root / WRITEUP).is_file():
        files[WRITEUP] = (root / WRITEUP).read_bytes()
    return files, remarks


def zipped(files):
    """The same bytes for the same files."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = NOTE
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(name)  # of 1980
            member.external_attr = 0o644 << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def check_place(out, root=ROOT):
    """Only an older zip of this program is replaced."""
    if out.suffix != ".zip":
        raise Refused(f"{out}: the name must end in .zip")
    if not out.parent.is_dir():
        raise Refused(f"{out.parent} is no folder")
    if (root / "tasks").resolve() in out.resolve().parents:
        raise Refused(f"{out} is in tasks/: name a place outside of it")
    if out.exists() or out.is_symlink():
        try:
            with zipfile.ZipFile(out) as archive:
                own = archive.comment == NOTE
        except (OSError, zipfile.BadZipFile):
            own = False
        if not own:
            raise Refused(f"{out} exists, and ./fsdp submit has not made it: choose another name")


def submit(out, root=ROOT):
    """Returns the files and the remarks."""
    files, remarks = collect(root)
    part = out.with_name(out.name + ".part")
    try:
        part.write_bytes(zipped(files))
        read = {f"tasks/{name}": content for name, content in submission.read_zip(part)[0].items()}
        if read != {name: content for name, content in files.items() if name != WRITEUP}:
            raise Refused(f"{out} does not hold the files of tasks/ as they are now: were they changed meanwhile?")
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return files, remarks


def points_of(path):
    check = json.loads(path.read_text())
    return ", ".join(f"{name} {part['points']:.1f} of {part['possible']:.0f}"
                     for name, part in (("points", check), ("extensions", check["extensions"])))


def main():
    parser = argparse.ArgumentParser(prog="fsdp submit", description="Checks the tasks and makes the zip to hand in.")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT.zip")
    parser.add_argument("--checked", nargs=2, type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        check_place(arguments.out)
        if not arguments.checked:
            collect()
            return
        files, remarks = submit(arguments.out)
        points, refused = points_of(arguments.checked[0]), arguments.checked[1].read_text().splitlines()
    except (OSError, Refused) as error:
        sys.exit(f"fsdp submit: {error}")
    print("", *remarks, f"{arguments.out}: {len(files)} files; {points}, by the tests of ./fsdp check", sep="\n")
    if refused:
        print("The grader gives no points for what is wrong here:", *refused, sep="\n  ")
        sys.exit(1)
    print("The grader takes all of it.")


if __name__ == "__main__":
    main()
