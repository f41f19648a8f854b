"""Makes pages from the results of ./fsdp reproduce --write in writeup/: one for each row, and the
list of the rows."""

import collections
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from course.skeletons import tomllib  # noqa: E402

# `shown`: the row whose tables show this row; `when` is None if that is another row.
Row = collections.namedtuple("Row", "name source kind minutes when shown command")
OURS = ("planned", "all", "speedup", "GB")  # columns that are compared with `published`
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def described(files):
    """Returns the content of programs/reproduce/tables.toml; without rows in a handout, which lacks
    the file."""
    return tomllib.loads(files.get("programs/reproduce/tables.toml", b"row = []").decode())


def rows(files):
    for row in described(files)["row"]:
        shown = row.get("same_as", row["name"])
        yield Row(row["name"], row["source"], row["kind"], row["minutes"], row.get("when"), shown,
                  row.get("command", f"./fsdp reproduce --only {shown}"))


def lines(files, name):
    """Returns the lines of the row's last results: one about the whole, and one for each program
    that ran."""
    return [json.loads(line) for line in files[f"writeup/{name}.json"].decode().splitlines()]


def cells(table):
    """Returns the rows of a table in Markdown, each as header -> cell."""
    header, _, *found = (
        [cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()
    )
    return [dict(zip(header, row, strict=True)) for row in found]


def table(files, name):
    """Returns the first table of the row."""
    return cells(TABLE.search(files[f"writeup/{name}.md"].decode())[0])


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def shown(found):
    """Returns the table in Markdown, with coloured verdicts and the difference from the published
    values."""
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


def page(row, text, drawn):
    """Returns the page of a row, from the text that ./fsdp reproduce wrote."""
    about, _, text = text.partition("\n## ")
    figures = "".join(
        f"![{figure.title}](../figures/{figure.name}.svg)\n\n**{figure.title}.** {figure.text}\n\n"
        for figure in drawn
        if figure.row == row.name
    )
    return (
        f"# {row.name}\n\n{row.source}, {row.kind}. On two cores, this takes "
        f"{said(row.minutes)}:\n\n    {row.command}\n\n{figures}"
        f"<details><summary>The last run</summary>\n{about.partition(chr(10))[2]}\n</details>\n\n"
        f"## {TABLE.sub(lambda match: shown(cells(match[0])), text)}"
    )


def overview(files):
    """Returns the list of the rows, as a page."""
    found = []
    for row in rows(files):
        has = f"writeup/{row.shown}.md" in files
        verdict = ("tests" if row.kind == "test" else "-" if row.when == "never" else
                   lines(files, row.shown)[0]["verdict"] if has else "not run")
        found.append(
            {
                "": verdict,
                "row": f"[{row.name}]({row.shown}.md)" if has else row.name,
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
    """Returns path -> Markdown of the pages. `drawn`: the figures."""
    made = {f"writeup/{row.name}.md": page(row, files[f"writeup/{row.name}.md"].decode(), drawn)
            for row in rows(files) if f"writeup/{row.name}.md" in files}
    return {**made, "writeup/index.md": overview(files)} if made else {}
