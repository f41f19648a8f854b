#!/usr/bin/env python3
"""Finds which C++ files include which. scripts/tidy.sh runs this file as a program: it reads the
paths of C++ files from standard input, and prints for each .cpp file a line with its path, its hash
and the hashes of the files that it includes, directly or indirectly."""

import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(r'^ *# *include *[<"](?:fsdp/)?([^">]+)[">]', re.MULTILINE)


def included(texts):
    """Returns a dict, path -> the paths of the files in `texts` that it includes. `texts`: path ->
    content. An include directive matches every file whose path ends with the included name."""
    ends = {}
    for path in texts:
        parts = path.split("/")
        for i in range(len(parts)):
            ends.setdefault("/".join(parts[i:]), set()).add(path)
    return {
        path: set().union(*(ends.get(name, ()) for name in INCLUDE.findall(text))) - {path}
        for path, text in texts.items()
    }


def reached(path, arrows):
    """Returns `path` and the paths of all files that it includes, directly or indirectly. `arrows`:
    path -> the paths that it includes directly."""
    found, left = set(), {path}
    while left:
        found |= left
        left = set().union(*(arrows[one] for one in left)) - found
    return found


def main():
    texts = {path: pathlib.Path(path).read_text() for path in sys.stdin.read().splitlines()}
    arrows = included(texts)
    hashes = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in texts.items()}
    for path in texts:
        if path.endswith(".cpp"):
            print(path, *(hashes[one] for one in sorted(reached(path, arrows))))


if __name__ == "__main__":
    main()
