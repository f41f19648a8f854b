#!/usr/bin/env python3
"""Prints the includes that break a rule of the layers: a layer includes only itself and the layers
that MAY_INCLUDE lists (the module ADAPTER also includes tasks/), only solutions/ includes files of
solutions/, and neither modules nor files include one another in a circle. rooms.py checks further
promises of common/README.md."""

import graphlib
import re
import sys

import handout
from includes import included

# Layer -> the layers that it may include besides itself; the highest comes first.
MAY_INCLUDE = {
    "programs": ("library", "trainer", "tasks", "common"),
    "library": ("trainer", "tasks", "common"),
    "trainer": ("common",),
    "tasks": ("common",),
    "common": (),
}
ADAPTER = "strategies/fsdp"  # the only module of trainer/ that may include tasks/


def sources():
    """Returns a dict with the C++ files of all modules: path -> text."""
    inside = re.compile(r"((common|trainer|solutions|library|programs)/.*\.(h|cpp)|tasks/.*\.h)$")
    return {
        name: (handout.ROOT / name).read_text() for name in handout.tracked() if inside.match(name)
    }


def layer_of(path):
    folder = path.partition("/")[0]
    return "tasks" if folder == "solutions" else folder


def module_of(path):
    """Returns the module of a path: common/comm/link.h -> comm; tasks/task2_x/y.h -> task2, also in
    solutions/ and extensions/; library/... -> library; programs/... -> programs."""
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
                yield (
                    f"{path} includes {target}: another stack has other files; "
                    "include a header of tasks/"
                )
    for nodes, what in ((modules, "modules"), (includes, "files")):
        try:
            graphlib.TopologicalSorter(nodes).prepare()
        except graphlib.CycleError as error:
            yield f"{what} in a circle: {' -> '.join(error.args[1][::-1])}"


if __name__ == "__main__":
    sys.exit("\n".join(broken_rules(included(sources()))) or 0)
