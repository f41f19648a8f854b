#!/usr/bin/env python3
"""Draws loss, held-out loss and accuracy, and tokens per second of runs of ./fsdp train.

Reads the files of --log and --json (docs/telemetry.md). The legend has the names of the files. The
colours of an SVG follow the reader's light or dark scheme. A .csv gets all numbers as a table.
"""

import argparse
import csv
import json
import math
import pathlib
import re
import statistics
import sys

# The most points of a curve. If a run has more steps, they are divided into groups, and the lowest
# and the highest value of each group are drawn.
MOST_POINTS = 400
HELD_OUT_LOSS = "held-out loss (right: perplexity)"
HELD_OUT_ACCURACY = "held-out accuracy, %"
SPEED = "tokens/s, running median"


def held_out(line, what, field="held_out"):
    """Returns a number (`what`: loss or accuracy) of the evaluation on held-out data after the step
    of this line or, with the field "held_out_before", before the step; None if there was no
    evaluation."""
    value = line.get(field, {}).get(what)
    return None if value is None else float(value)


def percent(fraction):
    return None if fraction is None else 100 * fraction


PANELS = {
    "loss": lambda line: math.nan if line["loss"] is None else float(line["loss"]),
    HELD_OUT_LOSS: lambda line: held_out(line, "loss"),
    HELD_OUT_ACCURACY: lambda line: percent(held_out(line, "accuracy")),
    SPEED: lambda line: line.get("tokens_per_s"),
}
# The x of a point is the number of steps that the parameters have had. The loss of a step is that
# before its update. An evaluation is after the step in whose line it is, except that of BEFORE.
X_LABEL = "steps done (0: before the first step)"
# Results of an evaluation before the step in whose line they are.
BEFORE = {
    HELD_OUT_LOSS: lambda line: held_out(line, "loss", "held_out_before"),
    HELD_OUT_ACCURACY: lambda line: percent(held_out(line, "accuracy", "held_out_before")),
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
    """Reads a log. Returns a dict, step -> the line of the step, which is a dict too. If a resumed
    run has repeated a step, the step's last line counts. The last line of the file may be
    incomplete, because the run may still be writing it."""
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
                for value_of in (*PANELS.values(), *BEFORE.values()):
                    value_of(line)  # raises if ./fsdp train did not write this line
                steps[int(line["step"])] = line
        except (ValueError, TypeError, KeyError, AttributeError):
            if number < len(lines):
                sys.exit(
                    f"fsdp plot: {path}:{number}: is no line that ./fsdp train --log or --json "
                    f"writes"
                )
    return steps or sys.exit(f"fsdp plot: {path}: has no step")


def running_median(found):
    """Returns (step, median) for each point of `found`. The median is over the points around it,
    about a twentieth of all points."""
    half = max(2, len(found) // 40)
    values = [value for _, value in found]
    return [
        (step, statistics.median(values[max(0, i - half) : i + half + 1]))
        for i, (step, _) in enumerate(found)
    ]


def points(steps, panel):
    """Returns the points (x, value) of the curve in this panel. A step without a value has no
    point. A loss that is not finite is NaN, which interrupts the curve. The speed is smoothed by
    running_median()."""
    values = [(step, PANELS[panel](line)) for step, line in sorted(steps.items())]
    if panel in BEFORE:
        before = ((step, BEFORE[panel](line)) for step, line in sorted(steps.items()))
        after = ((step + 1, value) for step, value in values)
        values = sorted((*before, *after), key=lambda point: point[0])
    found = [(step, value) for step, value in values if value is not None]
    if panel == SPEED:
        found = running_median(found)
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
    """Returns matplotlib's pyplot, set to draw text and axes in the colour `ink` on the colour
    `paper`."""
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


def add_perplexity(axes):
    """Adds an axis on the right of a loss's axes, which shows the perplexity, e^loss, at the ticks
    of the loss."""
    right = axes.twinx()
    ticks = [tick for tick in axes.get_yticks() if 0 <= tick <= axes.get_ylim()[1]]
    right.set_ylim(axes.get_ylim())
    right.set_yticks(ticks, [f"{math.exp(tick):.3g}" if tick < 20 else "" for tick in ticks])


def draw(runs, out, ink, paper):
    """Draws the runs into the file `out`, a panel for each quantity. `runs`: label -> steps, from
    read()."""
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
                linewidth=1.4 if i else 2,
                marker="o" if len(curve) == 1 else None,
            )
        axes.set_ylim(*((-4, 104) if "%" in panel else (0, None)))
        if panel == HELD_OUT_LOSS:
            add_perplexity(axes)
    axes.set_xlabel(X_LABEL)
    axes.set_xlim(left=min(x for panel in panels for steps in runs.values()
                           for x, _ in points(steps, panel)))
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside upper left",
        ncols=min(len(runs), 3),
    )
    figure.savefig(out, dpi=200, metadata={"Date": None} if out.suffix == ".svg" else None)


def follow_the_scheme(svg):
    """Returns the SVG with colours of text and background that follow the reader's light or dark
    scheme. The returned SVG is one line, and its numbers have at most two decimals."""
    style = (
        f"<style>svg {{ color: {INK}; fill: currentColor }} .paper {{ fill: {PAPER} }} @media "
        f"(prefers-color-"
        f"scheme: dark) {{ svg {{ color: {DARK_INK} }} .paper {{ fill: {DARK_PAPER} }} }}</style>"
    )
    svg = svg.replace(f'style="fill: {PAPER}"', 'class="paper"').replace(INK, "currentColor")
    svg = re.sub(r"\s*\n\s*", " ", re.sub(r"(\d\.\d\d)\d+", r"\1", svg))
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + style, svg, count=1) + "\n"


def flat(line, prefix=""):
    """Returns a dict, name -> value for all fields of a log line. A field inside an object has a
    name such as seconds.step."""
    found = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def write_table(runs, out):
    """Writes the runs as CSV, with a row for each step of each run: the run's label in the column
    `run`, then all fields of the step's line. A field that the line does not have is an empty
    cell."""
    rows = [
        {"run": label, **flat(line)}
        for label, steps in runs.items()
        for _, line in sorted(steps.items())
    ]
    with out.open("w", newline="") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        table.writeheader()
        table.writerows(rows)


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
        "--out", required=True, type=pathlib.Path, metavar="FILE",
        help="the picture, .svg or .png, or a table of all numbers, .csv"
    )
    parser.add_argument(
        "--dark", action="store_true", help="draw a dark .png; an .svg follows the reader's scheme"
    )
    arguments = parser.parse_args()
    out, logs = arguments.out, arguments.logs
    if out.suffix not in (".svg", ".png", ".csv"):
        parser.error(f"--out {out}: the name must end in .svg, .png or .csv")
    for log in logs:
        if out.exists() and log.exists() and out.samefile(log):
            parser.error(f"--out {out}: is the log {log}, which would be replaced; give another "
                         "file")
    unique = len({log.name for log in logs}) == len(logs)
    try:
        runs = {log.name if unique else str(log): read(log) for log in logs}
        if out.suffix == ".csv":
            write_table(runs, out)
        else:
            dark = arguments.dark and out.suffix == ".png"
            draw(runs, out, *((DARK_INK, DARK_PAPER) if dark else (INK, PAPER)))
        if out.suffix == ".svg":
            out.write_text(follow_the_scheme(out.read_text()))
    except ModuleNotFoundError as error:
        sys.exit(f"fsdp plot: {error.name} is missing: run ./fsdp setup --plots")
    except OSError as error:
        sys.exit(f"fsdp plot: {error.filename}: {error.strerror}")
    print(f"{out}: {', '.join(f'{len(steps)} steps of {label}' for label, steps in runs.items())}")


if __name__ == "__main__":
    main()
