#!/usr/bin/env python3
"""Draws loss, held-out accuracy and tokens per second of each step of runs of ./fsdp train.

Reads the files of --log and --json (docs/telemetry.md). The legend has the names of the files. The
colours of an SVG follow the reader's light or dark scheme.
"""

import argparse
import json
import math
import pathlib
import re
import sys

# Points of a curve. If a run has more steps, the lowest and highest value of each group are drawn.
MOST_POINTS = 400
PANELS = {
    "loss": lambda line: math.nan if line["loss"] is None else float(line["loss"]),
    "held-out accuracy, %": lambda line: (
        100 * line["held_out"]["accuracy"] if "held_out" in line else None
    ),
    "tokens/s": lambda line: line.get("tokens_per_s"),
}
# Each colour has a contrast of 3:1 or more on the light and on the dark background.
COLORS = (
    "#3b82d6",
    "#d1700f",
    "#1f9a63",
    "#b65fc0",
    "#8a8f98",
    "#a68a00",
)
DASHES = ("-", *((0, dash) for dash in ((4, 3), (1.5, 2), (7, 2, 1.5, 2), (3, 6), (1, 4))))
INK, PAPER, DARK_INK, DARK_PAPER = "#1f2431", "#fffffe", "#e8e5de", "#14161a"


def read(path):
    """Returns step -> {panel: value}. A step that a resumed run repeats counts once. The last line
    may be incomplete."""
    steps, lines, marked = {}, path.read_bytes().split(b"\n"), False
    for number, text in enumerate(lines, 1):
        try:
            line = json.loads(text)
            marked = marked or "resumed_after" in line
            if not {"failure", "final", "resumed_after"} & line.keys():
                if int(line["step"]) in steps and not marked:
                    print(
                        f"fsdp plot: {path}:{number}: step {line['step']} comes again; the file "
                        f"may have two runs, "
                        "of which the last line of each step is drawn",
                        file=sys.stderr,
                    )
                    marked = True
                steps[int(line["step"])] = {
                    panel: value_of(line) for panel, value_of in PANELS.items()
                }
        except (ValueError, TypeError, KeyError, AttributeError):
            if number < len(lines):
                sys.exit(
                    f"fsdp plot: {path}:{number}: is no line that ./fsdp train --log or --json "
                    f"writes"
                )
    return steps or sys.exit(f"fsdp plot: {path}: has no step")


def points(steps, panel):
    """Returns (step, value) of the steps that have a value. A loss that is not finite interrupts
    the curve."""
    found = [
        (step, values[panel]) for step, values in sorted(steps.items()) if values[panel] is not None
    ]
    size = max(1, math.ceil(2 * len(found) / MOST_POINTS))
    groups = [
        sorted(found[i : i + size], key=lambda p: (math.isnan(p[1]), p[1]))
        for i in range(0, len(found), size)
    ]
    return (
        found
        if size < 3
        else [point for group in groups for point in sorted((group[0], group[-1]))]
    )


def pyplot_in(ink, paper):
    """Returns matplotlib's pyplot, set to draw in these colours."""
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "fsdp",
            "figure.facecolor": paper,
            "axes.facecolor": "none",
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            **{
                f"{name}color": ink
                for name in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.", "grid.")
            },
        }
    )
    from matplotlib import pyplot
    return pyplot


def draw(runs, out, ink, paper):
    """Draws the runs into the file `out`. `runs`: label -> steps."""
    pyplot = pyplot_in(ink, paper)
    panels = [panel for panel in PANELS if any(points(steps, panel) for steps in runs.values())]
    figure = pyplot.figure(layout="constrained", figsize=(5.4, 0.7 + 1.8 * len(panels)))
    for axes, panel in zip(
        figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0], panels, strict=True
    ):
        axes.set_title(panel, loc="left")
        axes.grid(alpha=0.15)
        for i, (label, steps) in enumerate(runs.items()):
            curve = points(steps, panel)
            axes.plot(
                [step for step, _ in curve],
                [value for _, value in curve],
                label=label,
                color=COLORS[i % len(COLORS)],
                linestyle=DASHES[i % len(DASHES)],
                linewidth=0.8 if panel == "tokens/s" else 1.4 if i else 2,
                marker="o" if len(curve) == 1 else None,
            )
        axes.set_ylim(*((-4, 104) if "%" in panel else (0, None)))
    axes.set_xlabel("step")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside upper left",
        ncols=min(len(runs), 3),
    )
    figure.savefig(out, dpi=200, metadata={"Date": None} if out.suffix == ".svg" else None)


def follow_the_scheme(svg):
    """Returns the SVG with colours of text and background that follow the reader's scheme. It is
    one line, with shortened numbers."""
    style = (
        f"<style>svg {{ color: {INK}; fill: currentColor }} .paper {{ fill: {PAPER} }} @media "
        f"(prefers-color-"
        f"scheme: dark) {{ svg {{ color: {DARK_INK} }} .paper {{ fill: {DARK_PAPER} }} }}</style>"
    )
    svg = svg.replace(f'style="fill: {PAPER}"', 'class="paper"').replace(INK, "currentColor")
    svg = re.sub(r"\s*\n\s*", " ", re.sub(r"(\d\.\d\d)\d+", r"\1", svg))
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + style, svg, count=1) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="fsdp plot", description=__doc__.splitlines()[0])
    parser.add_argument(
        "logs",
        nargs="+",
        type=pathlib.Path,
        metavar="LOG.jsonl",
        help="a file of train --log or --json",
    )
    parser.add_argument(
        "--out", required=True, type=pathlib.Path, metavar="FILE", help="the picture: .svg or .png"
    )
    parser.add_argument(
        "--dark", action="store_true", help="draw a dark .png; an .svg follows the reader's scheme"
    )
    arguments = parser.parse_args()
    out, logs = arguments.out, arguments.logs
    if out.suffix not in (".svg", ".png"):
        parser.error(f"--out {out}: the name must end in .svg or .png")
    unique = len({log.name for log in logs}) == len(logs)
    try:
        runs = {log.name if unique else str(log): read(log) for log in logs}
        draw(
            runs,
            out,
            *((DARK_INK, DARK_PAPER) if arguments.dark and out.suffix == ".png" else (INK, PAPER)),
        )
        if out.suffix == ".svg":
            out.write_text(follow_the_scheme(out.read_text()))
    except ModuleNotFoundError as error:
        sys.exit(f"fsdp plot: {error.name} is missing: run ./fsdp setup --plots")
    except OSError as error:
        sys.exit(f"fsdp plot: {error.filename}: {error.strerror}")
    print(f"{out}: {', '.join(f'{len(steps)} steps of {label}' for label, steps in runs.items())}")


if __name__ == "__main__":
    main()
