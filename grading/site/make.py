#!/usr/bin/env python3
"""Makes the course as a site: a folder of pages that need no server and no network."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "course"))
import handout  # noqa: E402
import pages  # noqa: E402
import skeletons  # noqa: E402

MARK = "objects.inv"  # every site has this file; only a folder with it is replaced


class Broken(Exception):
    pass


def files_of(students):
    """Returns a dict, path -> bytes of the files of a handout, for `students`, or of this
    repository."""
    if students:
        return {name: data for name, (data, _) in handout.contents().items()}
    return {name: (handout.ROOT / name).read_bytes() for name in handout.tracked()}


def say(text):
    print(f"fsdp site: {text}", file=sys.stderr, flush=True)


def progress(output, say):
    """Reads the output of Sphinx. Calls `say` at every tenth of its two long stages, reading and
    writing."""
    told = None
    for line in output:
        found = re.match(r"(reading sources|writing output)\.*\s*\[ *(\d+)%\]", line)
        part = found and (found[1], int(found[2]) // 10 * 10)
        if part and part != told and part[1]:
            say(f"{part[0]}: {part[1]} %")
            told = part


def run_sphinx(sources, trees, source, made):
    """Writes the sources (name -> bytes) into the folder `source`, and runs Sphinx, which makes
    pages of them in the folder `made`. Raises Broken if Sphinx fails or warns."""
    for name, data in sources.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--no-color",
        "-W",
        "--keep-going",
        "-j",
        "auto",
        "-c",
        HERE,
        "-d",
        trees,
        source,
        made,
    ]
    with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as sphinx:
        progress(sphinx.stdout, say)
        if sphinx.wait():
            errors.seek(0)
            raise Broken(errors.read().replace(f"{source}/", "").strip())
    for name in sources:  # Sphinx does not copy pictures that pages name in HTML
        if name.endswith((".png", ".svg")):
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, made / name)


def build(files, out):
    """Makes the site of the files (path -> bytes) in the folder `out`, completely or not at all.
    Replaces an older site there."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".site") as folder:
        source, made = (pathlib.Path(folder, name) for name in ("source", "made"))
        say("drawing figures")
        sources = pages.Site(files).sources()
        say(f"making pages: {sum(name.endswith('.md') for name in sources)}")
        run_sphinx(sources, pathlib.Path(folder, "trees"), source, made)
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
