"""Makes pages from the results that ./fsdp reproduce --write has written into writeup/: one for
each row, and a list of all rows. A row is a published table, figure or claim that ./fsdp reproduce
shows."""

import collections
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from course.skeletons import tomllib  # noqa: E402

# A row of programs/reproduce/tables.toml. `when`: with which options ./fsdp reproduce runs the row.
# `shown`: the name of the row whose tables show this row. This is mostly the row's own name; if it
# is the name of another row, `when` is None.
Row = collections.namedtuple("Row", "name source kind minutes when shown command")
TITLES = {  # titles of pages for readers who know neither the documents nor the rows
    "gpt2xl": "GPT-2 XL: FSDP on eight ranks computes what one process computes",
    "ddp": "DDP on eight ranks computes what one process computes",
    "small": "A small model: FSDP and one process compute the same losses",
    "strict": "FSDP, DDP and one process end with the same bits",
    "gpt2xl-memory": "What a rank holds when it trains GPT-2 XL",
    "breakdown": "GPT-2 XL: which tensors fill the memory of a rank",
    "weak": "Speed on more ranks, each with as much work as before",
    "strong": "Speed on more ranks that share the same work",
    "memory": "What a rank holds on 1 to 8 ranks",
    "reshard": "What resharding after forward saves, and what it costs",
    "prefetch": "How much faster prefetch makes a step",
    "duplicated": "How much is held twice if the root also holds its blocks' parameters",
    "init": "Construct a model without memory",
    "arrangements": "The same bits on any number of ranks, with any options",
    "questions": "The questions of the handouts, answered by programs",
    "pictures": "A step drawn from a run",
    "modular": "Learn modular addition: in 32 and 16 bits, beside PyTorch's FSDP2",
    "resume": "A killed run continues to the same bits",
    "telemetry": "Where the time of a step goes",
    "receipts": "What a receipt and an audit cost",
    "traces": "The trace of a run",
    "matrix": "FSDP against DDP and one process, with many options",
    "third": "On three ranks, each holds a third",
    "traffic": "What a rank receives in a step",
    "duke": "Tokens per second beside a student project at Duke",
    "duke-loss": "The loss curve of a student project at Duke",
    "duke-precision": "What 16 bits and checkpointing change, in published numbers",
    "limits": "How many units to gather at a time",
    "llama-13b": "What a rank of 64 holds when it trains a model of 13 billion parameters",
    "zero": "The three stages of ZeRO, worked out",
    "flops": "How fast models of up to 175 billion parameters can train",
    "wraps": "How large a unit should be",
    "flat": "One large collective against a thousand small ones",
    "strategies": "Full, hybrid or no sharding: traffic and memory",
    "checkpoints": "What a checkpoint costs",
    "ranks": "Memory of a rank as ranks are added",
}
KINDS = {
    "measured": "The course measures it",
    "planned": "The course computes it before a run, with `./fsdp plan`",
    "arithmetic": "The course works it out from formulas",
    "published": "The course compares the published numbers with one another",
    "test": "Tests of the course show it",
}
OURS = ("planned", "all", "speedup", "GB")  # columns of ours that are compared with `published`
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def described(files):
    """Returns the content of programs/reproduce/tables.toml as a dict. A handout lacks this file;
    then the dict has no rows."""
    return tomllib.loads(files.get("programs/reproduce/tables.toml", b"row = []").decode())


def rows(files):
    for row in described(files)["row"]:
        shown = row.get("same_as", row["name"])
        yield Row(row["name"], row["source"], row["kind"], row["minutes"], row.get("when"), shown,
                  row.get("command", f"./fsdp reproduce --only {shown}"))


def lines(files, name):
    """Returns the lines of writeup/NAME.json, the last results of a row: one about the whole row,
    and one for each program that ran."""
    return [json.loads(line) for line in files[f"writeup/{name}.json"].decode().splitlines()]


def cells(table):
    """Returns the rows of a table in Markdown, each as a dict from header to cell."""
    header, _, *found = (
        [cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()
    )
    return [dict(zip(header, row, strict=True)) for row in found]


def table(files, name):
    """Returns the first table in writeup/NAME.md, the results of the row `name` of ./fsdp
    reproduce, in the form of cells()."""
    return cells(TABLE.search(files[f"writeup/{name}.md"].decode())[0])


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def shown(found):
    """Returns a table as Markdown, with coloured verdicts and a column for the difference from the
    published values. `found`: the table in the form of cells()."""
    ours = next((name for name in OURS if name in found[0] and "published" in found[0]), None)
    for row in found:
        verdict = row.pop("")
        if ours:
            published, value = number(row["published"]), number(row[ours])
            row["difference"] = (
                f"{value / published - 1:+.1%}" if published and value is not None else ""
            )
        row["verdict"] = (
            verdict and f'<span class="{verdict.lower().replace(" ", "-")}">{verdict}</span>'
        )
    right = [
        all(number(row[name].rstrip("%")) is not None or not row[name] for row in found)
        for name in found[0]
    ]
    text = [
        found[0],
        ["---:" if is_right else "---" for is_right in right],
        *(row.values() for row in found),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in text)


def said(minutes):
    return {0: "seconds", 1: "a minute"}.get(minutes, f"{minutes} minutes")


def title_of(row):
    return TITLES.get(row.name, row.name)


def documents(files):
    """Returns a dict, short name ("Duke") -> authors and title, of the documents in which the
    results were published that ./fsdp reproduce computes again."""
    legend = " ".join(described(files)["legend"].split())
    return dict(re.findall(r"([A-Z]\w+): (.+?)\. (?=\w+: )", legend))


def page(row, text, drawn, documents):
    """Returns the page about a row of ./fsdp reproduce as Markdown. `text`: what ./fsdp reproduce
    has written into writeup/."""
    about, _, text = text.partition("\n## ")
    name, place = re.fullmatch(r"(\w+),? (.*)", row.source).groups()
    figures = "".join(
        f"![{figure.title}](../figures/{figure.name}.svg)\n\n**{figure.title}.** {figure.text}\n\n"
        for figure in drawn
        if figure.row == row.name
    )
    return (
        f"# {title_of(row)}\n\nThis was published in *{name}* ({documents[name]}), at {place}. "
        f"{KINDS[row.kind]}. On two cores, this takes {said(row.minutes)}:\n\n"
        f"    {row.command}\n\n{figures}"
        f"<details><summary>The last run</summary>\n{about.partition(chr(10))[2]}\n</details>\n\n"
        f"## {TABLE.sub(lambda match: shown(cells(match[0])), text)}"
    )


def overview(files):
    """Returns the page that lists all rows of ./fsdp reproduce, with their verdicts, as
    Markdown."""
    found = []
    for row in rows(files):
        has = f"writeup/{row.shown}.md" in files
        verdict = ("tests" if row.kind == "test" else "-" if row.when == "never" else
                   lines(files, row.shown)[0]["verdict"] if has else "not run")
        found.append(
            {
                "": verdict,
                "result": f"[{title_of(row)}]({row.shown}.md)" if has else title_of(row),
                "verdict": "",
                "published in": row.source,
                "kind": row.kind,
                "minutes": str(row.minutes),
                "command": f"`{row.command}`",
            }
        )
    legend = " ".join(described(files)["legend"].split())
    return (
        "# Published, and reproduced\n\nEach published table, figure and claim, with the command "
        f"that shows it here, and the verdict of its last run.\n\n{shown(found)}\n{legend}\n"
    )


def pages(files, drawn):
    """Returns a dict, path -> Markdown of the pages of all rows and of their list. `drawn`: the
    figures of the site."""
    made = {
        name: page(row, files[name].decode(), drawn, documents(files))
        for row in rows(files)
        if (name := f"writeup/{row.name}.md") in files
    }
    return {**made, "writeup/index.md": overview(files)} if made else {}
