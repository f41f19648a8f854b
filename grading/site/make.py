#!/usr/bin/env python3
"""Makes the course as a site: a folder of pages that need no server and no network."""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "course"))
import handout  # noqa: E402
import pages  # noqa: E402
import skeletons  # noqa: E402

MARK = "objects.inv"  # a file that every site has; only a folder with it is replaced


class Broken(Exception):
    pass


def files_of(students):
    """Returns path -> bytes of the files of a handout or of this repository."""
    if students:
        return {name: data for name, (data, _) in handout.contents().items()}
    return {name: (handout.ROOT / name).read_bytes() for name in handout.tracked()}


STEP = "docs/step.html"  # the interactive page of a step, which Sphinx does not make


def run_sphinx(sources, trees, source, made, has_step):
    """Writes the sources (name -> bytes) and makes pages of them."""
    for name, data in sources.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-j",
        "auto",
        "-c",
        HERE,
        "-d",
        trees,
        *(["-t", "step"] if has_step else []),
        source,
        made,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Broken(done.stderr.replace(f"{source}/", "").strip())
    if (source / "figures").is_dir():
        shutil.copytree(source / "figures", made / "figures")


def build(files, out):
    """Makes the site of the files (path -> bytes) in the folder `out`, completely or not at all."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site") as folder:
        source, made = (pathlib.Path(folder, name) for name in ("source", "made"))
        run_sphinx(
            pages.Site(files).sources(), pathlib.Path(folder, "trees"), source, made, STEP in files
        )
        if STEP in files:
            (made / STEP).parent.mkdir(exist_ok=True)
            (made / STEP).write_bytes(files[STEP])
        if out.exists():
            shutil.rmtree(out)
        made.rename(out)


def main():
    parser = argparse.ArgumentParser(prog="fsdp site", description=__doc__)
    parser.add_argument(
        "out",
        type=pathlib.Path,
        metavar="OUT",
        help="the folder to make, or an older site to replace",
    )
    parser.add_argument(
        "--students", action="store_true", help="of what ./fsdp handout packs, without solutions"
    )
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    if not out.parent.is_dir():
        parser.error(f"{out}: there is no folder {out.parent}")
    if out.exists() and not (out / MARK).is_file():
        parser.error(f"{out}: is there already, and is no site; name a new folder")
    try:
        build(files_of(arguments.students), out)
    except (OSError, subprocess.CalledProcessError, skeletons.Refused, Broken) as error:
        sys.exit(f"fsdp site: {error}")
    print(
        f"{arguments.out / 'index.html'}: {sum(1 for _ in out.rglob('*.html'))} pages; open it in "
        f"a browser"
    )


if __name__ == "__main__":
    main()
