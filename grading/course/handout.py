#!/usr/bin/env python3
"""Makes the student's repository: OUT.tar.gz.

The repository has the files that a student builds, runs and reads, but no solution, no fault and
nothing of the grader except what the student's verbs use. With --release K it also has the
solutions of the tasks before K, so that task K can be tested over them. It has the first state of
tasks/ twice: for the student to change, and in .pristine/ for `./fsdp reset`. .pristine/delivered
lists the files, for `./fsdp update`. .pristine/hashes has the hashes of the files that a student
must not change, for `./fsdp check`.
"""

import argparse
import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import skeletons  # noqa: E402

ROOT = skeletons.ROOT
FOLDER = "fsdp-course"

# A file of this repository is in the handout if its path begins with one of these strings. The
# other files are for maintainers.
GIVEN = tuple(
    """
    .clang-format .clangd .devcontainer/ .dockerignore .gitignore .vscode/ AGENTS.md
    CMakeLists.txt CMakePresets.json Dockerfile LICENSE appendix/ cmake/ common/ course.toml
    docs/checkpoints.md docs/debugging.md docs/hugging_face.md docs/leaderboard.md docs/memory-
    docs/receipts.md docs/step.html docs/telemetry.md fsdp grading/course/skeletons.py
    grading/grader/course.py
    grading/grader/leaderboard.py grading/grader/submission.py grading/leaderboard.py
    grading/plot.py grading/submit.py programs/audit.cpp programs/check programs/diff.cpp
    programs/export_model.cpp programs/generate.cpp programs/hello.cpp programs/inspect.cpp
    programs/tokenize.cpp programs/train.cpp programs/why scripts/build.sh
    scripts/build_errors.sh scripts/changed_files.sh scripts/look.sh scripts/look_at_task.sh
    scripts/stacks.sh scripts/verb.sh tasks/ tests/task trainer/
""".split()
) + tuple(
    f"scripts/verbs/{verb}.sh"
    for verb in """
    appendix audit build check diff doctor export generate hello help hint inspect leaderboard
    plot replay reset setup submit tokenize train why
""".split()
)
LIST, HASHES = ".pristine/delivered", ".pristine/hashes"
# The test programs are built from the files whose paths begin with one of these strings. The grader
# uses its own copies of these files, so a student must not change them.
DECIDES = (
    "CMake",
    "cmake/",
    "common/",
    "course.toml",
    "programs/",
    "scripts/look.sh",
    "solutions/",
    "tests/",
    "trainer/",
)
# Path in this repository -> its other path in a handout. ./fsdp update exists only in a handout.
RENAMED = {"COURSE.md": "README.md", "grading/course/update.sh": "scripts/verbs/update.sh"}


def tracked():
    command = ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "--deduplicate"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def for_students(page):
    """Returns docs/step.html, the page about the actions of a training step, for students. The
    returned page hides the order of the actions, which is the answer to problems of the course,
    until a button is pressed."""
    hidden = page.replace(b'data-students=""', b'data-students="hidden"')
    if hidden.count(b'data-students="hidden"') != 1:
        raise skeletons.Refused(
            "docs/step.html: cannot hide the order of actions; make the page again with "
            "grading/site/step/build.py"
        )
    return hidden


def contents(release=1):
    """Returns a dict, path in the handout -> (bytes, whether it is executable), for every file of a
    release."""
    files = {}
    # Task 0 is optional and no other task builds on it, so its solution is only in the last
    # release.
    tasks = range(0 if release == 8 else 1, release)
    released = tuple(f"solutions/{folder}_" for task in tasks
                     for folder in skeletons.folders_of(f"task{task}"))
    for name in tracked():
        if name.startswith(GIVEN) or name in RENAMED or (released and name.startswith(released)):
            path = ROOT / name
            content = (
                for_students(path.read_bytes()) if name == "docs/step.html" else path.read_bytes()
            )
            files[RENAMED.get(name, name)] = (content, os.access(path, os.X_OK))
    files = {name: file for name, file in files.items()
             if not (name.startswith("tasks/") and skeletons.is_source(name))}
    for name, content in skeletons.delivered().items():
        files[name] = files[".pristine/" + name.removeprefix("tasks/")] = (content, False)
    files[HASHES] = (hashes(files).encode(), False)
    return with_list(files)


def hashes(files):
    """Returns lines in the format of sha256sum, one for each file on which the result of a test
    depends and that the student must not change: the files of DECIDES and the headers in tasks/."""
    return "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, (content, _) in sorted(files.items())
        if name.startswith(DECIDES) or (name.startswith("tasks/") and name.endswith(".h"))
    )


def with_list(files):
    """Returns the dict `files` with one more file at the path LIST: a list of the paths of all
    other files."""
    names = "".join(f"{name}\n" for name in sorted(files) if name != LIST)
    return {**files, LIST: (names.encode(), False)}


def commit_time():
    """Returns the time of the commit that the handout is made from."""
    command = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def write(out, files, seconds):
    """Writes the archive, completely or not at all. All its files have the time `seconds`, so the
    same files give the same bytes."""
    part = out.with_name(out.name + ".part")
    with (
        part.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, (data, executable) in sorted(files.items()):
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(data)
            info.mtime = seconds
            info.mode = 0o755 if executable else 0o644
            archive.addfile(info, io.BytesIO(data))
    part.replace(out)


def main():
    parser = argparse.ArgumentParser(prog="fsdp handout", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, metavar="OUT.tar.gz")
    parser.add_argument("--release", type=int, default=1, choices=range(1, 9), metavar="K",
                        help="with the solutions of tasks 1 to K-1")
    arguments = parser.parse_args()
    if not arguments.out.name.endswith(".tar.gz"):
        parser.error(f"{arguments.out}: the name must end in .tar.gz")
    try:
        files = contents(arguments.release)
        write(arguments.out, files, commit_time())
    except (OSError, subprocess.CalledProcessError, skeletons.Refused) as error:
        sys.exit(f"fsdp handout: {error}")
    megabytes = arguments.out.stat().st_size / 1e6
    print(f"{arguments.out}: {len(files)} files, {megabytes:.1f} MB; unpacks into {FOLDER}/")


if __name__ == "__main__":
    main()
