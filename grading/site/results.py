"""Pages of what ./fsdp reproduce wrote to writeup/: one for each row, and the list of the rows."""

import collections
import json
import re

Row = collections.namedtuple("Row", "name source kind minutes set command")
OURS = ("planned", "all", "speedup", "GB")  # what a table compares with its column `published`
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


def rows(files):
    """What programs/reproduce/rows.cpp describes; nothing in a handout, which lacks it."""
    text = re.sub(r"\n (?=\S)", " ", files.get("programs/reproduce/rows.cpp", b"").decode())
    for line in re.findall(r"^# \d+ (.*)$", text, re.MULTILINE):
        name, source, kind, minutes, when, *command = re.split(r" +\| ", line)
        yield Row(name, source, kind, minutes, when, *(command or [f"./fsdp reproduce --only {name}"]))


def lines(files, name):
    """What the row's last run was, and a line for each program that it ran."""
    return [json.loads(line) for line in files[f"writeup/{name}.json"].decode().splitlines()]


def cells(table):
    """The rows of a table in Markdown, header -> cell."""
    header, _, *found = ([cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines())
    return [dict(zip(header, row, strict=True)) for row in found]


def table(files, name):
    """The row's first table."""
    return cells(TABLE.search(files[f"writeup/{name}.md"].decode())[0])


def number(cell):
    try:
        return float(cell)
    except ValueError:
        return None


def shown(found):
    """The table in Markdown, with verdicts in colour and the difference from what was published."""
    ours = next((name for name in OURS if name in found[0] and "published" in found[0]), None)
    for row in found:
        verdict = row.pop("")
        if ours:
            published, value = number(row["published"]), number(row[ours])
            row["difference"] = f"{value / published - 1:+.1%}" if published and value is not None else ""
        row["verdict"] = verdict and f'<span class="{verdict.lower().replace(" ", "-")}">{verdict}</span>'
    right = [all(number(row[name].rstrip("%")) is not None or not row[name] for row in found) for name in found[0]]
    text = [found[0], ["---:" if is_right else "---" for is_right in right], *(row.values() for row in found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in text)


def said(minutes):
    return {"0": "seconds", "1": "a minute"}.get(minutes, f"{minutes} minutes")


def page(row, text, drawn):
    """The page of a row, from what the program wrote."""
    about, _, text = text.partition("\n## ")
    figures = "".join(f"![{figure.title}](../figures/{figure.name}.svg)\n\n**{figure.title}.** {figure.text}\n\n"
                      for figure in drawn if figure.row == row.name)
    return (f"# {row.name}\n\n{row.source}, {row.kind}. On two cores, this takes {said(row.minutes)}:\n\n    {row.command}\n\n{figures}"
            f"<details><summary>The last run</summary>\n{about.partition(chr(10))[2]}\n</details>\n\n"
            f"## {TABLE.sub(lambda match: shown(cells(match[0])), text)}")


def overview(files):
    """The list of the rows."""
    registry = files["programs/reproduce/registry.cpp"].decode()
    documents = "".join(re.findall('"(.*?)"', re.search(r"kDocuments =\n(.*?);$", registry, re.DOTALL | re.MULTILINE)[1]))
    found = []
    for row in rows(files):
        at = row.set.removeprefix("as ") if row.set.startswith("as ") else row.name
        has = f"writeup/{at}.md" in files
        verdict = ("tests" if row.kind == "test" else "-" if row.set == "never" else
                   lines(files, at)[0]["verdict"] if has else "not run")
        found.append({"": verdict, "row": f"[{row.name}]({at}.md)" if has else row.name, "verdict": "", "published in": row.source,
                      "kind": row.kind, "minutes": row.minutes, "command": f"`{row.command}`"})
    return ("# Published, and reproduced\n\nEach published table, figure and claim, with the command that shows it here, and the "
            f"verdict of its last run.\n\n{shown(found)}\n{documents}\n")


def pages(files, drawn):
    """Path -> Markdown. `drawn`: the figures."""
    made = {f"writeup/{row.name}.md": page(row, files[f"writeup/{row.name}.md"].decode(), drawn)
            for row in rows(files) if f"writeup/{row.name}.md" in files}
    return {**made, "writeup/index.md": overview(files)} if made else {}
