#!/usr/bin/env python3
"""Draws runs of ./fsdp train: the loss, the held-out accuracy and the tokens per second of each step.

Reads the files of --log and --json (docs/telemetry.md). Several runs share the axes; their file names are the
legend. The colours of an SVG follow the reader's light or dark scheme.
"""

import argparse
import json
import math
import pathlib
import re
import sys

MOST_POINTS = 400  # of a curve; of more steps, the lowest and the highest of each group are drawn
PANELS = {"loss": lambda line: line.get("loss"),
          "held-out accuracy, %": lambda line: percent(line.get("held_out", {}).get("accuracy")),
          "tokens/s": lambda line: line.get("tokens_per_s")}
COLORS = ("#3b82d6", "#d1700f", "#1f9a63", "#b65fc0", "#8a8f98", "#a68a00")  # 3:1 or more on both papers
DASHES = ("-", *((0, dash) for dash in ((4, 3), (1.5, 2), (7, 2, 1.5, 2), (3, 6), (1, 4))))
INK, PAPER, DARK_INK, DARK_PAPER = "#1f2431", "#fffffe", "#e8e5de", "#14161a"


class Refused(Exception):
    pass


def percent(share):
    return None if share is None else 100 * share


def read(path):
    """Step -> line. A step that a resumed run computed again counts once. The last line may still be being written."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    steps = {}
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text) if text else {"final": True}
            if not {"failure", "final"} & line.keys():
                steps[int(line["step"])] = line
                [float(value) for draw in PANELS.values() if (value := draw(line)) is not None]
        except (ValueError, TypeError, KeyError, AttributeError):
            if number < len(lines):
                raise Refused(f"{path}:{number}: is no line that ./fsdp train --log or --json writes") from None
    if not steps:
        raise Refused(f"{path}: has no step")
    return steps


def points(steps, value_of):
    """(step, value) of the lines that have one. A value that is not finite interrupts the curve."""
    found = [(step, value_of(line)) for step, line in sorted(steps.items())]
    if value_of is not PANELS["loss"]:
        found = [point for point in found if point[1] is not None]
    found = [(step, math.nan if value is None else value) for step, value in found]
    size = math.ceil(2 * len(found) / MOST_POINTS)
    if size <= 2:
        return found
    groups = [sorted(found[i:i + size], key=lambda p: (math.isnan(p[1]), p[1])) for i in range(0, len(found), size)]
    return [point for group in groups for point in sorted((group[0], group[-1]))]


def labels(paths):
    """The names of the files, or the paths where two names are equal."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def draw(runs, out, dark):
    """`runs`: label -> steps."""
    import matplotlib
    ink, paper = (DARK_INK, DARK_PAPER) if dark else (INK, PAPER)
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "fsdp", "font.size": 10, "figure.facecolor": paper,
        "axes.facecolor": "none", "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False,
        **{name: ink for name in ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color",
                                  "grid.color")}})
    from matplotlib import pyplot
    curves = {panel: {label: points(steps, value_of) for label, steps in runs.items()}
              for panel, value_of in PANELS.items()}
    curves = {panel: of_runs for panel, of_runs in curves.items() if any(of_runs.values())}
    figure, all_axes = pyplot.subplots(len(curves), sharex=True, squeeze=False, layout="constrained",
                                       figsize=(5.4, 0.7 + 1.8 * len(curves)))
    for axes, (panel, of_runs) in zip(all_axes[:, 0], curves.items(), strict=True):
        axes.set_title(panel, loc="left", fontsize=10)
        axes.grid(alpha=0.15)
        for i, (label, curve) in enumerate(of_runs.items()):
            axes.plot(*zip(*curve) if curve else ([], []), label=label, color=COLORS[i % len(COLORS)],
                      linestyle=DASHES[i % len(DASHES)], linewidth=(2 if i == 0 else 1.4) / (2 if panel == "tokens/s" else 1),
                      marker="o" if len(curve) == 1 else None, markersize=4)
        axes.set_ylim(*((-4, 104) if "%" in panel else (0, None)))
    all_axes[-1, 0].set_xlabel("step")
    figure.legend(*all_axes[0, 0].get_legend_handles_labels(), loc="outside upper left", ncols=min(len(runs), 3))
    figure.savefig(out, dpi=200, metadata={"Date": None} if out.suffix == ".svg" else None)


def follow_the_scheme(svg):
    """Replaces the two colours of text and background by those of the reader's scheme, and writes short numbers."""
    style = (f"<style>svg {{ color: {INK}; fill: currentColor }} .paper {{ fill: {PAPER} }} "
             f"@media (prefers-color-scheme: dark) {{ svg {{ color: {DARK_INK} }} .paper {{ fill: {DARK_PAPER} }} }}</style>")
    svg = svg.replace(f'style="fill: {PAPER}"', 'class="paper"').replace(INK, "currentColor")
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + "\n " + style, svg, count=1)


def main():
    parser = argparse.ArgumentParser(prog="fsdp plot", description=__doc__.splitlines()[0])
    parser.add_argument("logs", nargs="+", type=pathlib.Path, metavar="LOG.jsonl", help="a file of train --log or --json")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="FILE", help="the picture: .svg or .png")
    parser.add_argument("--dark", action="store_true", help="a dark .png; an .svg is light or dark as its reader is")
    arguments = parser.parse_args()
    if arguments.out.suffix not in (".svg", ".png"):
        parser.error(f"--out {arguments.out}: the name must end in .svg or .png")
    svg = arguments.out.suffix == ".svg"
    try:
        runs = dict(zip(labels(arguments.logs), map(read, arguments.logs)))
        draw(runs, arguments.out, arguments.dark and not svg)
        if svg:
            arguments.out.write_text(follow_the_scheme(arguments.out.read_text()))
    except ModuleNotFoundError as error:
        sys.exit(f"fsdp plot: {error.name} is missing: run ./fsdp setup --plots")
    except (OSError, Refused) as error:
        sys.exit(f"fsdp plot: {error}")
    print(f"{arguments.out}: {', '.join(f'{len(steps)} steps of {label}' for label, steps in runs.items())}")


if __name__ == "__main__":
    main()
