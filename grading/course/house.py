#!/usr/bin/env python3
"""Draws the modules in their layers, and which modules each one includes.

The drawing stands in CONTRIBUTING.md between two marks and is made from the #include lines alone.
Without options this writes it anew; with --check it prints what is out of date and what breaks a rule:
a layer includes only what MAY_INCLUDE lists, comm/ does not include trace/, and no modules, and no
files within a module, include one another in a circle.
"""

import argparse
import graphlib
import re
import sys

import handout
from includes import included, reached

ROOT = handout.ROOT
PAGE = ROOT / "CONTRIBUTING.md"
MARKS = ("<!-- house: made by grading/course/house.py -->\n", "<!-- /house -->\n")

# Layer -> the layers that it may include besides itself; the highest comes first.
MAY_INCLUDE = {
    "programs": ("library", "trainer", "tasks", "common"),
    "library": ("trainer", "tasks", "common"),
    "trainer": ("common",),
    "tasks": ("common",),
    "common": (),
}
ADAPTER = "strategies/fsdp"  # the module of trainer/ that includes the tasks


def sources():
    """Path -> text of the C++ files that modules hold."""
    inside = re.compile(r"((common|trainer|solutions|library|programs)/.*\.(h|cpp)|tasks/.*\.h)$")
    return {name: (ROOT / name).read_text() for name in handout.tracked() if inside.match(name)}


def layer_of(path):
    folder = path.partition("/")[0]
    return "tasks" if folder == "solutions" else folder


def module_of(path):
    """common/comm/link.h -> comm; tasks/task2_x/y.h -> task2, and so in solutions/ and in extensions/;
    library/... -> library; programs/... -> programs"""
    folder, *parts = path.replace("/extensions/", "/").split("/")
    if folder in ("library", "programs"):
        return folder
    if path.startswith(f"trainer/{ADAPTER}/"):
        return ADAPTER
    return parts[0].partition("_")[0] if layer_of(path) == "tasks" else parts[0]


def arrows_between_modules(includes):
    arrows = {module_of(path): set() for path in includes}
    for path, targets in includes.items():
        arrows[module_of(path)] |= {module_of(target) for target in targets} - {module_of(path)}
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
        layer = layer_of(path)
        allowed = {layer, *MAY_INCLUDE[layer], *(["tasks"] if module_of(path) == ADAPTER else [])}
        for target in sorted(includes[path]):
            if layer_of(target) not in allowed:
                yield f"{path} includes {target}: {module_of(path)} knows nothing of {layer_of(target)}"
    if "trace" in arrows["comm"]:
        yield "comm/ includes trace/: the arrow points the other way"
    for nodes, what in ((arrows, "modules"), (includes, "files")):
        found = circle(nodes)
        if found:
            yield f"{what} in a circle: {' -> '.join(found)}"


def heights(arrows):
    """Module -> 0 if it includes no other, else one above the highest of them."""
    known = {}
    for module in graphlib.TopologicalSorter(arrows).static_order():
        known[module] = 1 + max((known[other] for other in arrows[module]), default=-1)
    return known


def direct(module, arrows):
    """The arrows of a module that no longer way replaces."""
    return {one for one in arrows[module] if not any(one in reached(o, arrows) for o in arrows[module] - {one})}


def drawing(files, arrows):
    layers = {module_of(path): layer_of(path) for path in files}
    height = heights(arrows)
    rows = ["layer     module           includes"]
    for layer in MAY_INCLUDE:
        members = sorted((m for m in arrows if layers[m] == layer), key=lambda m: (-height[m], m))
        for number, module in enumerate(members):
            label = f"{layer}/" if number == 0 else ""
            targets = ", ".join(sorted(direct(module, arrows)))
            arrow = f"-> {targets}" if targets else ""
            rows.append(f"{label:<9} {module:<16} {arrow}".rstrip())
    return "```\n" + "\n".join(rows) + "\n```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what is out of date or wrong")
    check = parser.parse_args().check
    files = sources()
    includes = included(files)
    arrows = arrows_between_modules(includes)
    faults = list(broken_rules(files, includes, arrows))
    page = PAGE.read_text()
    before, mark, rest = page.partition(MARKS[0])
    old, end, after = rest.partition(MARKS[1])
    if not mark or not end:
        sys.exit(f"{PAGE.name} lacks the marks of the drawing")
    if not circle(arrows):
        new = drawing(files, arrows)
        if check and old != new:
            faults.append(f"{PAGE.name} shows another house: run grading/course/house.py")
        elif not check:
            PAGE.write_text(before + mark + new + end + after)
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
