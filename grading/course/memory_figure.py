#!/usr/bin/env python3
"""Draws docs/memory-light.png and docs/memory-dark.png: what rank 0 holds in the second step, by class,
with one more lever in each panel, from runs of the reference solution. Needs matplotlib: run it with
.venv-peers/bin/python3, which ./fsdp setup --peers makes.
"""

import json
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from course.claimed import run  # noqa: E402
from grader.course import BUILD, ROOT  # noqa: E402

COMMON = "--model medium --recipe published --steps 2".split()
LEVERS = [  # (title, its option); each panel has the options of the ones before it
    ("DDP", "--world 4 --mode ddp"),
    ("FSDP, one unit", "--mode fsdp --wrap none"),
    ("a unit for each block", "--wrap block"),
    ("activations computed again", "--checkpoint-activations all"),
    ("the optimizer in backward", "--step-in-backward on"),
    ("its state in a file", "--offload optimizer --offload-dir DIR"),
    ("no prefetch", "--prefetch off"),
    ("twice the ranks", "--world 8"),
]
CLASSES = ["shards", "optimizer_state", "sharded_gradients", "gradients", "gathered", "communication",
           "rest"]
LABELS = {"gathered": "gathered parameters", "gradients": "gradients", "rest": "activations and the rest",
          "communication": "buckets and staging"}
THEMES = {  # as in the page of the timeline (common/trace/page/timeline.css)
    "light": {"page": "#fbfaf7", "ink": "#1f2430", "soft": "#6d7280", "line": "#e5e1d8",
              "shards": "#5f6e80", "optimizer_state": "#9d8fbb", "sharded_gradients": "#c9805a",
              "gradients": "#e3a27f", "gathered": "#8db4da", "communication": "#cdb95c", "rest": "#dedad0"},
    "dark": {"page": "#14161a", "ink": "#e8e5de", "soft": "#959aa5", "line": "#2d3138",
             "shards": "#75859a", "optimizer_state": "#6d5f8d", "sharded_gradients": "#b86f49",
             "gradients": "#96583a", "gathered": "#41688f", "communication": "#a3914a", "rest": "#3a3e45"},
}


def options_up_to(last):
    options = {}  # a later --wrap or --mode replaces the one before
    for _, words in LEVERS[:last + 1]:
        words = words.split()
        options.update(zip(words[::2], words[1::2]))
    return options


def trained(options, folder):
    """What the run prints."""
    if "--offload-dir" in options:
        options = {**options, "--offload-dir": folder}
    words = [word for pair in options.items() for word in pair]
    return run([BUILD / "bin" / "reference_train", *COMMON, *words]).stdout


def table():
    """A line for each lever: what it is, its option, the highest total of a rank."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, words) in enumerate(LEVERS):
            peak = re.search(r"peak ([\d,]*\d)", trained(options_up_to(number), folder))[1]
            lines.append(f"{title:30}{words:39}{peak:>13}\n")
    return "".join(lines)


def trace_of(options, folder):
    """The trace events of rank 0."""
    trace = pathlib.Path(folder) / "trace.json"
    trained({**options, "--trace": str(trace)}, folder)
    return [event for event in json.loads(trace.read_text())["traceEvents"] if event["pid"] == 0]


def curve_of(events):
    """The second step: times from 0 to 1, the bytes of each class then, and the highest total before."""
    step, = (event for event in events if event["name"] == "step 1")  # they count from 0
    counters = [event for event in events
                if event["ph"] == "C" and step["ts"] <= event["ts"] <= step["ts"] + step["dur"]]
    live = [event for event in counters if event["name"] == "live bytes"]
    begin, end = live[0]["ts"], live[-1]["ts"]
    times = [(event["ts"] - begin) / (end - begin) for event in live]
    bytes_of = {cls: [event["args"][cls] for event in live] for cls in CLASSES}
    return times, bytes_of, [event["args"]["bytes"] for event in counters if event not in live]


def draw(curves, theme, path):
    import matplotlib  # only here: the table is made without it
    matplotlib.use("Agg")
    from matplotlib import pyplot
    colors = THEMES[theme]
    pyplot.rcParams.update({"font.size": 9, "text.color": colors["ink"], "axes.labelcolor": colors["soft"],
                            "xtick.color": colors["soft"], "ytick.color": colors["soft"]})
    figure, grid = pyplot.subplots(2, 4, figsize=(12, 6), sharex=True, sharey="row",
                                   facecolor=colors["page"])
    for (title, words), (times, bytes_of, highest), axes in zip(LEVERS, curves, grid.flat):
        stacks = [[value / 1e6 for value in bytes_of[cls]] for cls in CLASSES]
        areas = axes.stackplot(times, stacks, step="post", colors=[colors[cls] for cls in CLASSES],
                               labels=[LABELS.get(cls, cls.replace("_", " ")) for cls in CLASSES])
        for area in areas:
            area.set_linewidth(0)
        axes.step(times, [value / 1e6 for value in highest], where="pre", color=colors["ink"],
                  linewidth=0.7)
        peak = max(highest)
        at = highest.index(peak)
        axes.annotate(f"{peak / 1e6:,.0f} MB", ((times[max(at - 1, 0)] + times[at]) / 2, peak / 1e6),
                      xytext=(0, 3), ha="center", textcoords="offset points")
        axes.set_title(f"{title}\n", fontsize=10, color=colors["ink"], loc="left")
        axes.text(0, 1.02, words.replace(" --offload-dir DIR", ""), transform=axes.transAxes, fontsize=8,
                  family="monospace", color=colors["soft"])
        axes.set_facecolor(colors["page"])
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.margins(y=0.12)
        axes.grid(axis="y", color=colors["line"], linewidth=0.6)
        axes.set_axisbelow(True)
        for spine in axes.spines.values():
            spine.set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("live bytes of a rank [MB]")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(CLASSES), frameon=False, fontsize=9,
                  handlelength=1.2, columnspacing=1.4)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, dpi=100, facecolor=colors["page"])
    pyplot.close(figure)


def main():
    with tempfile.TemporaryDirectory() as folder:
        curves = [curve_of(trace_of(options_up_to(number), folder)) for number in range(len(LEVERS))]
    for theme in THEMES:
        draw(curves, theme, ROOT / "docs" / f"memory-{theme}.png")


if __name__ == "__main__":
    main()
