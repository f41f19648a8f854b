#!/usr/bin/env python3
"""Draws the house: the rooms, and which rooms each one includes.

The drawing stands in CONTRIBUTING.md between two marks and is made from the #include lines alone.
Without options this writes it anew; with --check it prints what is out of date and what breaks a rule:
no room of common/ includes a task or a program, comm/ includes neither trace/ nor cuda/, and no rooms,
and no files within a room, include one another in a circle.
"""

import argparse
import graphlib
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import handout  # noqa: E402
from includes import included, reached  # noqa: E402

ROOT = handout.ROOT
PAGE = ROOT / "CONTRIBUTING.md"
MARKS = ("<!-- house: made by grading/course/house.py -->\n", "<!-- /house -->\n")


def sources():
    """Path -> text of the C++ files that rooms hold."""
    inside = re.compile(r"(common|solutions|library|programs)/.*\.(h|cpp)$")
    return {name: (ROOT / name).read_text() for name in handout.tracked() if inside.match(name)}


def room_of(path):
    """common/comm/link.h -> comm; solutions/task2_x/y.h -> task2, and so in solutions/extensions/;
    library/... -> library; programs/... -> programs"""
    parts = path.replace("solutions/extensions/", "solutions/").split("/")
    if parts[0] == "common":
        return parts[1]
    return parts[0] if parts[0] in ("library", "programs") else parts[1].partition("_")[0]


def arrows_between_rooms(includes):
    arrows = {room_of(path): set() for path in includes}
    for path, targets in includes.items():
        arrows[room_of(path)] |= {room_of(target) for target in targets} - {room_of(path)}
    return arrows


def circle(arrows):
    """One circle as a list of its members; empty if there is none."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def broken_rules(files, includes, arrows):
    for path in sorted(files):
        for target in sorted(includes[path]):
            if path.startswith("common/") and not target.startswith("common/"):
                yield f"{path} includes {target}: common/ knows no task and no program"
    for above in ("trace", "cuda"):
        if above in arrows["comm"]:
            yield f"comm/ includes {above}/: the arrow points the other way"
    for nodes, what in ((arrows, "rooms"), (includes, "files")):
        found = circle(nodes)
        if found:
            yield f"{what} in a circle: {' -> '.join(found)}"


def heights(arrows):
    """Room -> its layer: 0 for a room that includes no other, else one above the highest of them."""
    known = {}
    for room in graphlib.TopologicalSorter(arrows).static_order():
        known[room] = 1 + max((known[other] for other in arrows[room]), default=-1)
    return known


def direct(room, arrows):
    """The arrows of a room that no longer way replaces."""
    return {one for one in arrows[room] if not any(one in reached(o, arrows) for o in arrows[room] - {one})}


def drawing(arrows):
    layers = heights(arrows)
    rows = ["layer  room         includes"]
    for layer in sorted(set(layers.values()), reverse=True):
        for number, room in enumerate(sorted(r for r in arrows if layers[r] == layer)):
            label = str(layer) if number == 0 else ""
            targets = ", ".join(sorted(direct(room, arrows)))
            arrow = f"-> {targets}" if targets else ""
            rows.append(f"{label:>5}  {room:<12} {arrow}".rstrip())
    return "```\n" + "\n".join(rows) + "\n```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what is out of date or wrong")
    check = parser.parse_args().check
    files = sources()
    includes = included(files)
    arrows = arrows_between_rooms(includes)
    faults = list(broken_rules(files, includes, arrows))
    page = PAGE.read_text()
    before, mark, rest = page.partition(MARKS[0])
    old, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        sys.exit(f"{PAGE.name} lacks the marks of the drawing")
    if not circle(arrows):
        new = drawing(arrows)
        if check and old != new:
            faults.append(f"{PAGE.name} shows another house: run grading/course/house.py")
        elif not check:
            PAGE.write_text(before + mark + new + end + after)
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
