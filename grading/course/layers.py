#!/usr/bin/env python3
"""Prints what breaks a rule of the layers: a layer includes only what MAY_INCLUDE lists, only solutions/
includes files of solutions/, comm/ does not include trace/, and neither modules nor files include one another
in a circle."""

import graphlib
import re
import sys

import handout
from includes import included, reached

# Layer -> the layers that it may include besides itself; the highest comes first.
MAY_INCLUDE = {
    "programs": ("library", "trainer", "tasks", "common"),
    "library": ("trainer", "tasks", "common"),
    "trainer": ("common",),
    "tasks": ("common",),
    "common": (),
}
# Of common/, what serves ranks, the lowest first: what they call, how they are started on one host, how they
# find one another on several, and what moves the bytes between them. trace/ observes the calls from above.
ROOMS = ("comm", "launch", "hosts", "transports")
ADAPTER = "strategies/fsdp"  # the module of trainer/ that includes the tasks


def sources():
    """Path -> text of the C++ files that modules hold."""
    inside = re.compile(r"((common|trainer|solutions|library|programs)/.*\.(h|cpp)|tasks/.*\.h)$")
    return {name: (handout.ROOT / name).read_text() for name in handout.tracked() if inside.match(name)}


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


def broken_rules(includes):
    modules = {module_of(path): set() for path in includes}
    for path, targets in sorted(includes.items()):
        module, layer = module_of(path), layer_of(path)
        modules[module] |= {module_of(target) for target in targets} - {module}
        allowed = {layer, *MAY_INCLUDE[layer], *(["tasks"] if module == ADAPTER else [])}
        for target in sorted(targets):
            if layer_of(target) not in allowed:
                yield f"{path} includes {target}: {module} knows nothing of {layer_of(target)}"
            elif target.startswith("solutions/") and not path.startswith("solutions/"):
                yield f"{path} includes {target}: another stack has other files; include a header of tasks/"
    if "trace" in modules.get("comm", ()):
        yield "comm/ includes trace/: the arrow points the other way"
    for nodes, what in ((modules, "modules"), (includes, "files")):
        try:
            graphlib.TopologicalSorter(nodes).prepare()
        except graphlib.CycleError as error:
            yield f"{what} in a circle: {' -> '.join(error.args[1][::-1])}"


def doors(readme):
    """Room -> the headers that files outside the rooms may include, by the table of common/README.md."""
    rows = re.findall(r"^\| `(\w+)/` \|[^|]*\| (`[^|]*) \|$", readme, re.MULTILINE)
    return {room: re.findall(r"`(\w+\.h)`", headers) for room, headers in rows if room in ROOMS}


def broken_rooms(includes, readme):
    """Includes that go up from a room, that pass by its doors, and doors that nobody uses."""
    listed, used = doors(readme), set()
    for path, targets in sorted(includes.items()):
        inside = path.startswith("common/") and module_of(path) in ROOMS
        for target in sorted(targets):
            folder, room, header = target.split("/")[0], module_of(target), target.split("/")[-1]
            if inside and folder == "common" and (room == "trace" or room in ROOMS[ROOMS.index(module_of(path)) + 1 :]):
                yield f"{path} includes {target}: {module_of(path)}/ knows nothing of {room}/"
            if inside or folder != "common" or room not in ROOMS:
                continue
            used.add((room, header))
            if header not in listed.get(room, ()):
                yield f"{path} includes {target}, which common/README.md does not list for files outside {room}/"
    for room, headers in listed.items():
        yield from (f"common/README.md lists {room}/{header}, which no file outside the rooms includes"
                    for header in headers if (room, header) not in used)


def wrong_count(texts, includes, readme):
    """The sentence of common/README.md on how many headers a student meets, if it is wrong."""
    own = [path for path in texts if path.startswith(("solutions/", "tasks/"))]
    common = {path for path in texts if path.startswith("common/")}
    direct = set().union(*(includes[path] for path in own)) & common
    met = set().union(*(reached(path, includes) for path in direct)) & common
    lines = round(sum(texts[path].count("\n") for path in met), -1)
    right = f"Solutions include {len(direct)} of its headers, which include {len(met) - len(direct)} others: about {lines:,} lines."
    if right not in " ".join(readme.split()):
        yield f"common/README.md does not say: {right}"


def main():
    texts = sources()
    includes, readme = included(texts), (handout.ROOT / "common/README.md").read_text()
    broken = [*broken_rules(includes), *broken_rooms(includes, readme), *wrong_count(texts, includes, readme)]
    sys.exit("\n".join(broken) or 0)


if __name__ == "__main__":
    main()
