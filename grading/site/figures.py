"""Draws the figures of the site from the results of ./fsdp reproduce in writeup/. Inside of a page,
an .svg has the page's colours; by itself, it follows the reader's light or dark scheme. The
docstring of a figure's function is its title and its text on the site."""

import collections
import io
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import plot  # noqa: E402
import results  # noqa: E402

Figure = collections.namedtuple("Figure", "name row title text svg")
# Class of live bytes -> name of its colour in timeline.css.
CLASSES = {
    "shards": "shards",
    "sharded_gradients": "sharded-gradients",
    "optimizer_state": "state",
    "gathered": "all-gather",
    "gradients": "reduce-scatter",
    "activations": "other",
}
USED = [*CLASSES.values(), "forward", "backward", "optimizer", "soft"]


def schemes():
    """Returns a dict, colour scheme (light, dark) -> {name: colour}. The colours are those of
    common/trace/page/timeline.css, and `link` and `ok`."""
    css = (
        pathlib.Path(__file__).resolve().parents[2] / "common/trace/page/timeline.css"
    ).read_text()
    more = {
        "light": {"link": "#2f6498", "ok": "#1d7a4b"},
        "dark": {"link": "#7fb2e5", "ok": "#4fbf85"},
    }
    return {
        scheme: {**dict(re.findall(r"--([\w-]+): (#\w{6}|rgba\(.*?\))", block)), **more[scheme]}
        for scheme, block in zip(more, re.findall(r":root \{(.*?)\}", css, re.DOTALL), strict=True)
    }


SCHEMES = schemes()
COLOR = SCHEMES["light"]


def stacked(axes, bars, horizontal=False):
    """Draws stacked bars with their totals at the ends. `bars`: label of a bar -> {class of live
    bytes: value}."""
    ends = [0.0] * len(bars)
    for cls, name in CLASSES.items():
        values = [bar.get(cls, 0.0) for bar in bars.values()]
        if any(values):
            (axes.barh if horizontal else axes.bar)(
                list(bars), values, 0.6, ends, color=COLOR[name], label=cls.replace("_", " ")
            )
        ends = [end + value for end, value in zip(ends, values)]
    for i, end in enumerate(ends):
        at, beside, across, along = (((end, i), (3, 0), "left", "center") if horizontal else
                                     ((i, end), (0, 2), "center", "bottom"))
        axes.annotate(f"{end:.1f}", at, beside, textcoords="offset points", ha=across, va=along)
    axes.grid(visible=False, axis="y" if horizontal else "x")
    axes.margins(**{"x" if horizontal else "y": 0.12})


def memory(axes, files):
    """What W ranks divide, and what they don't
    Small model, the most of each class that rank 0 holds. Shards, their gradients and the
    optimizer's state are divided by W. The gathered units and their gradients are not; activations,
    left out here, shrink with the rows of a rank."""
    table = results.table(files, "memory")
    stacked(
        axes, {row["W"]: {cls: float(row[cls]) for cls in CLASSES if cls in row} for row in table}
    )
    axes.set(xlabel="ranks", ylabel="MB of a rank")


def breakdown(axes, files):
    """Where 22.0 GB of GPT-2 XL come from
    What one of eight ranks holds at the peak: as published; if all that was gathered and all
    gradients stay; and as planned here. The first two agree: a program with these two leaks holds
    so much."""
    names = {"parameters": "shards", "optimizer": "optimizer_state"}
    table = {
        names.get(row["class"], row["class"]): row for row in results.table(files, "breakdown")
    }
    count = re.search(r"N = ([\d,]{10,})", files["writeup/gpt2xl-memory.md"].decode())[1]
    whole = 4e-9 * int(count.replace(",", ""))
    leaks = {
        "shards": whole / 8,
        "optimizer_state": whole / 4,
        "sharded_gradients": whole / 8,
        "gathered": whole,
        "gradients": whole,
    }
    of = {
        key: {cls: float(row[key]) for cls, row in table.items()}
        for key in ("planned", "published")
    }
    stacked(
        axes,
        {"planned": of["planned"], "two leaks": leaks, "published": of["published"]},
        horizontal=True,
    )
    axes.set(xlabel="GB of a rank")


def scaling(axes, files):
    """Speedup on more ranks
    Weak scaling keeps the rows of a rank, strong scaling the rows of all ranks together. Ours is
    measured only up to as many ranks as the machine has cores."""
    weak, strong = results.table(files, "weak"), results.table(files, "strong")
    ranks = [int(row["W"]) for row in weak]
    axes.plot(ranks, ranks, color=COLOR["soft"], linestyle=":", label="ideal")
    for label, table, column, name, dash in (
        ("weak, published", weak, "published", "backward", "-"),
        ("weak, ours", weak, "speedup", "forward", "-"),
        ("strong, ours", strong, "speedup", "forward", "--"),
    ):
        found = [(int(row["W"]), float(row[column])) for row in table if row[column]]
        axes.plot(*zip(*found), color=COLOR[name], marker="o", linestyle=dash, label=label)
    axes.set(xscale="log", yscale="log", xlabel="ranks", ylabel="speedup")
    axes.set_xticks(ranks, ranks)
    axes.set_yticks(ranks, ranks)


def prefetch(axes, files):
    """Prefetch never makes a step more than twice as fast
    Small model over links of nine kinds. Without prefetch a step takes at most C + N, computing and
    then the network; with it at least the longer of the two. So the speedup is at most the line,
    which is 2 where both are equal. The document says 2 to 3. Runs that were disturbed are left
    out."""
    ratios = [2 ** (i / 8) for i in range(-28, 21)]
    axes.fill_between(
        (ratios[0], ratios[-1]),
        2,
        3,
        color=COLOR["backward"],
        alpha=0.15,
        linewidth=0,
        label="published",
    )
    axes.plot(
        ratios,
        [(1 + ratio) / max(1, ratio) for ratio in ratios],
        color=COLOR["soft"],
        linestyle="--",
        label="bound",
    )
    for world, name in (("2", "forward"), ("4", "optimizer")):
        found = [
            (float(row["N"]) / float(row["C"]), float(row["off / on"]))
            for row in results.table(files, "prefetch")
            if row["W"] == world and row["off / on"] != "busy"
        ]
        axes.plot(*zip(*found), "o", color=COLOR[name], label=f"measured, W = {world}")
    axes.set(
        xscale="log",
        xlabel="N / C: time on the network / time to compute",
        ylabel="speedup",
        ylim=(1, 3.05),
    )
    axes.set_xticks((0.125, 0.25, 0.5, 1, 2, 4), ("1/8", "1/4", "1/2", "1", "2", "4"))


def loss(axes, files):
    """Two runs, one curve
    GPT-2 XL, two billion parameters: FSDP on eight ranks, and one process that computes their
    batches one after another. The ten losses and all parameters are equal to the bit, so one line
    hides the other."""
    fsdp, single = results.lines(files, "gpt2xl")[1:]
    for run, name, width, dash in ((single, "backward", 5, "-"), (fsdp, "forward", 1.5, "--")):
        axes.plot(
            [step["loss"] for step in run["steps"]],
            color=COLOR[name],
            linewidth=width,
            linestyle=dash,
            label=re.search(r"--mode (\w+)", run["options"])[1],
        )
    published = results.table(files, "gpt2xl")[0]
    axes.plot(
        (0, 9),
        [float(published[f"loss {step}"]) for step in (0, 9)],
        "o",
        color=COLOR["soft"],
        label="published",
    )
    axes.set(xlabel="step", ylabel="loss", xticks=range(0, 10, 3), yticks=(10.85, 10.86, 10.87))


def duke(axes, files):
    """Beside Duke's tokens per second
    Three sizes of one unit on two ranks, with and without 16 bits and checkpointing: theirs on two
    GPUs, ours on the cores of one machine."""
    for size, name in (("S", "forward"), ("M", "optimizer"), ("L", "backward")):
        for mode, marker in (("ddp", "o"), ("fsdp", "^")):
            found = [
                (float(row["their tokens/s"]), float(row["tokens/s"]))
                for row in results.table(files, "duke")
                if (row["size"], row["mode"]) == (size, mode)
            ]
            axes.plot(*zip(*found), marker, color=COLOR[name], label=f"{size}, {mode}")
    axes.set(xlabel="their tokens/s", ylabel="our tokens/s", xlim=(0, None), ylim=(0, None))


def predicted(axes, files):
    """Predicted to the byte
    Each point is a class of live bytes in a phase of a step, or what a rank received by one kind of
    collective, of all runs in `writeup/`. The legend says how many differ, by a byte or more."""
    live, received = set(), set()
    for name in files:
        for run in (
            results.lines(files, pathlib.Path(name).stem)[1:]
            if re.fullmatch(r"writeup/.*\.json", name)
            else []
        ):
            last = run.get("last", {})
            live |= {
                (value["predicted"], value["measured"])
                for phase in last.get("live_bytes", {}).values()
                for value in phase.values()
                if value["predicted"] is not None
            }
            received |= {
                (last["comm_bytes_predicted"].get(key, 0), value)
                for key, value in last.get("comm_bytes", {}).items()
            }
    axes.plot((1, 2e9), (1, 2e9), color=COLOR["soft"], linewidth=0.8)
    for label, found, name in (("live bytes", live, "forward"), ("received", received, "backward")):
        differ = sum(1 for expected, value in found if expected != value)
        axes.plot(*zip(*sorted(found)), "o", markersize=3.5, color=COLOR[name],
                  label=f"{label}: {len(found)} values, {differ} differ")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="bytes predicted",
        ylabel="bytes measured",
        xlim=(1, 2e9),
        ylim=(1, 2e9),
    )


# Function of a figure -> the row of ./fsdp reproduce whose page shows the figure.
ROWS = {
    memory: "memory",
    breakdown: "breakdown",
    scaling: "weak",
    prefetch: "prefetch",
    loss: "gpt2xl",
    duke: "duke",
    predicted: "traffic",
}


def svg_of(function, files):
    """Returns the figure that `function` draws, as SVG; None if a result that it needs is missing
    or has no number."""
    pyplot = plot.pyplot_in(plot.INK, plot.PAPER)
    figure, axes = pyplot.subplots(layout="constrained", figsize=(5.4, 3.2))
    axes.grid(alpha=0.15)
    axes.set_axisbelow(True)
    try:
        function(axes, files)
    except (KeyError, ValueError):
        return None
    finally:
        pyplot.close(figure)
    axes.minorticks_off()
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    svg = plot.follow_the_scheme(stream.getvalue())
    for name in USED:
        svg = svg.replace(COLOR[name], f"var(--{name}, {COLOR[name]})")
    dark = "; ".join(f"--{name}: {SCHEMES['dark'][name]}" for name in USED)
    return svg.replace(
        "</style>", f" @media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}</style>", 1
    ).encode()


def drawn(files):
    """Yields a Figure for each function of ROWS that finds the results that it draws among
    `files`."""
    for function, row in ROWS.items() if "writeup/small.md" in files else ():
        title, text = function.__doc__.split("\n", 1)
        svg = svg_of(function, files)
        if svg:
            yield Figure(function.__name__, row, title, " ".join(text.split()), svg)


def page(figures):
    parts = [
        "# Figures\n\nDrawn from the last results of `./fsdp reproduce`; each is a file in "
        "`figures/` of this site."
    ]
    for figure in figures:
        parts += [
            f"## {figure.title}",
            f"![{figure.title}](figures/{figure.name}.svg)",
            f"{figure.text} [The table](writeup/{figure.row}.md)",
        ]
    for title, name in (
        ("A step of four ranks, as `--trace` draws it", "timeline"),
        ("What each option saves", "memory"),
    ):
        parts += [
            f"## {title}",
            f'<picture><img alt="{title}" src="docs/{name}-light.png"></picture>',
        ]
    return "\n\n".join(parts) + "\n"
