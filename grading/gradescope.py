#!/usr/bin/env python3
"""Makes Gradescope's autograder: OUT.zip with setup.sh, run_autograder, this repository's files and
the secret seed of the hidden cases, which is the same for every submission to this autograder."""

import argparse
import io
import os
import pathlib
import sys
import tarfile
import zipfile

from course import handout
from course.handout import ROOT
from course.skeletons import is_source

# A file goes into the zip if its path begins with a string of IN: the files that a student builds
# (GIVEN), the solutions, and the grader.
GIVEN = tuple(
    name
    for name in handout.GIVEN
    if not name.startswith(("docs/", "appendix/", ".devcontainer/", "Dockerfile"))
)
IN = (*GIVEN, "solutions/", "grading/grade.py", "grading/rubric.toml", "grading/grader/",
      "grading/course/skeletons.py", "scripts/verbs/grade.sh")


def names():
    return [name for name in handout.tracked() if name.startswith(IN)]


def archive(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in members:
            tar.add(ROOT / name, arcname=name)
            if name.startswith("tasks/") and is_source(
                name
            ):  # the grader compares its tasks/ with these files
                tar.add(ROOT / name, arcname=f".pristine/{name.removeprefix('tasks/')}")
    return out.getvalue()


def add(archived, name, content, mode=0o644):
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    archived.writestr(info, content)


def main():
    parser = argparse.ArgumentParser(prog="fsdp gradescope", description=__doc__.split("\n\n")[0])
    parser.add_argument("out", metavar="OUT.zip")
    parser.add_argument("--seed", help="seed of the hidden cases (default: a new one)")
    arguments = parser.parse_args()
    seed = arguments.seed or os.urandom(8).hex()
    partial = pathlib.Path(arguments.out + ".partial")
    try:
        with zipfile.ZipFile(partial, "w") as archived:
            for name in ("setup.sh", "run_autograder"):
                content = (ROOT / "grading" / "gradescope" / name).read_bytes()
                add(archived, name, content, 0o755)
            add(archived, "seed", seed + "\n", 0o600)
            add(archived, "fsdp.tar.gz", archive(names()))
    except OSError as error:
        sys.exit(f"fsdp gradescope: {arguments.out} can't be written: {error.strerror}")
    partial.replace(arguments.out)
    size = pathlib.Path(arguments.out).stat().st_size / 1e6
    print(f"{arguments.out}: {len(names())} files, {size:.1f} MB; hidden cases: seed {seed}")


if __name__ == "__main__":
    main()
