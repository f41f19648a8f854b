#!/usr/bin/env python3
"""Prints which promises of common/README.md about the headers in common/ do not hold. A "room" is
one of the modules in ROOMS, which run the ranks. The promises are: a room includes only the rooms
before it; files outside the rooms include only the headers that the README's table lists; and the
number of headers that a student meets is right."""

import re
import sys

import handout
import layers
from includes import included, reached

# The modules of common/ that run the ranks, called rooms, the lowest first: the functions that
# ranks call, the launcher on one host, the connection of several hosts, and the transports that
# move bytes.
ROOMS = ("comm", "launch", "hosts", "transports")
ABOVE_ROOMS = ("trace", "watch", "testing")  # they observe the rooms, so no room includes them


def doors(readme):
    """Returns a dict, room -> the headers that files outside the rooms may include, as the table of
    common/README.md lists them."""
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\| (`[^|]*) \|$", readme, re.MULTILINE)
    return {room: re.findall(r"`(\w+\.h)`", headers) for room, headers in rows if room in ROOMS}


def room_of(path):
    """Returns the room that the file at `path` belongs to, or None if it belongs to none."""
    module = layers.module_of(path)
    return module if path.startswith("common/") and module in ROOMS else None


def broken_rooms(includes, readme):
    """Yields a message for each include of a higher room, for each include, outside the rooms, of a
    header that common/README.md does not list, and for each listed header that no file outside the
    rooms includes."""
    listed, used = doors(readme), set()
    for path, targets in sorted(includes.items()):
        room = room_of(path)
        above = (*ROOMS[ROOMS.index(room) + 1 :], *ABOVE_ROOMS) if room else ()
        for target in sorted(targets):
            module, header = layers.module_of(target), target.split("/")[-1]
            if target.startswith("common/") and module in above:
                yield f"{path} includes {target}: {room}/ knows nothing of {module}/"
            if room or not room_of(target):
                continue
            used.add((module, header))
            if header not in listed.get(module, ()):
                yield (
                    f"{path} includes {target}, which common/README.md does not list for files "
                    f"outside {module}/"
                )
    for room, headers in listed.items():
        for header in headers:
            if (room, header) not in used:
                yield (
                    f"common/README.md lists {room}/{header}, which no file outside the rooms "
                    "includes"
                )


def wrong_count(texts, includes, readme):
    """Yields, if the sentence in common/README.md about the number of headers that a student meets
    is wrong, a message with the right sentence."""
    own = [path for path in texts if path.startswith(("solutions/", "tasks/"))]
    common = {path for path in texts if path.startswith("common/")}
    direct = set().union(*(includes[path] for path in own)) & common
    met = set().union(*(reached(path, includes) for path in direct)) & common
    lines = round(sum(texts[path].count("\n") for path in met), -1)
    right = (
        f"Solutions include {len(direct)} of its headers, which include "
        f"{len(met) - len(direct)} others: about {lines:,} lines."
    )
    if right not in " ".join(readme.split()):
        yield f"common/README.md does not say: {right}"


def main():
    texts = layers.sources()
    includes, readme = included(texts), (handout.ROOT / "common/README.md").read_text()
    broken = [*broken_rooms(includes, readme), *wrong_count(texts, includes, readme)]
    sys.exit("\n".join(broken) or 0)


if __name__ == "__main__":
    main()
