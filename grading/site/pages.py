"""Turns the Markdown, the headers and the results of a copy of the course into the sources from
which Sphinx makes its site."""

import html
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import apps  # noqa: E402
import drawings  # noqa: E402
import figures  # noqa: E402
import results  # noqa: E402
from course.skeletons import tomllib  # noqa: E402

LANGUAGES = {
    ".h": "cpp",
    ".cpp": "cpp",
    ".txt": "cmake",
    ".json": "json",
    ".py": "python",
    ".sh": "bash",
    ".toml": "toml",
}
LEVELS = {"1": "A question", "2": "The idea", "3": "A pointer"}
BLOCK = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"(?<!\[)`([\w./-]+\.(?:h|cpp|md|html))`(?!\])")
PICTURE = re.compile(
    r'<picture>.*?<img\s+alt="([^"]*)"\s*src="([^"]*)"[^>]*>.*?</picture>', re.DOTALL
)
DOORS = re.compile(r"^## Where to begin\n+\| You are .*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
DRAWING = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.svg)\)$", re.MULTILINE)
HEADER = re.compile(r"^\| `([\w/]+\.h)` \|", re.MULTILINE)


def joined(page, path):
    return os.path.normpath(os.path.join(os.path.dirname(page), path))


def inline(svg, description):
    """Returns an SVG as HTML inside of a page, so that it has the page's colours. The HTML is one
    line, because an empty line would end it in Markdown."""
    svg = re.sub(
        r"<style.*?</style>|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    used = set(re.findall(r"#([\w-]+)", svg))
    svg = re.sub(r' id="([\w-]+)"', lambda match: match[0] if match[1] in used else "", svg)
    return (
        f'<div class="figure" role="img" '
        f'aria-label="{html.escape(" ".join(description.split()))}">{" ".join(svg.split())}</div>'
    )


def doors(rows):
    """Returns the cards of the first page, as Markdown. `rows`: the rows of the table in README.md,
    with the cells: who the reader is, what the reader wants, link to a page."""
    cards = {}
    for row in rows.splitlines():
        who, wish, link = (cell.strip() for cell in row[1:-1].split("|"))
        page = re.search(r"\]\((.*?)\)", link)[1]
        if who:
            last = cards[who] = []
        last.append(f"[{wish[0].upper()}{wish[1:]}]({page})")
    text = [f"**You are {who}**\n\n- " + "\n- ".join(links) for who, links in cards.items()]
    doors = "".join(f"```{{container}} door\n{card}\n```\n" for card in text[:3])
    others = [f"You are {who}: {', '.join(links)}." for who, links in [*cards.items()][3:]]
    return "\n\n".join([f"````{{container}} doors\n{doors}````", *others])


def toctree(names, caption=""):
    lines = "".join(f"/{name.removesuffix('.md')}\n" for name in names)
    return (
        f"\n\n```{{toctree}}\n:hidden:\n{caption and f':caption: {caption}'}\n\n{lines}```\n"
        if names
        else ""
    )


class Site:
    """The pages of a site. `files`: path -> bytes, of the repository or of a handout."""

    def __init__(self, files):
        drawn = list(figures.drawn(files))
        self.files = files = {
            **files,
            **{f"figures/{figure.name}.svg": figure.svg for figure in drawn},
        }
        self.folders = {
            str(folder) for name in files for folder in pathlib.PurePosixPath(name).parents
        }
        self.texts = {name: data.decode() for name, data in files.items()
                      if name.endswith(".md") and not name.startswith((".", "writeup/"))}
        self.texts.update(results.pages(files, drawn))
        self.texts.update(apps.pages(files))
        if drawn:
            self.texts["figures.md"] = figures.page(drawn)
        common = HEADER.findall(self.texts.get("common/README.md", ""))
        self.contracts = [
            *(
                name
                for name in sorted(files, key=lambda name: ("extensions" in name, name))
                if re.fullmatch(r"tasks/.*\.h", name)
            ),
            *(f"common/{name}" for name in common),
        ]
        self.shown = set(self.contracts)  # files and folders, not Markdown, that have a page
        for page, text in self.texts.items():
            links = [
                joined(page, link.partition("#")[0])
                for link in LINK.findall(BLOCK.sub("", text))
                if link[0] != "#"
            ]
            self.shown.update(
                link
                for link in links
                if self.page_of(link) not in self.texts and self.can_show(link)
            )

    def can_show(self, path):
        return path in self.folders or (
            path in self.files and pathlib.PurePosixPath(path).suffix in LANGUAGES
        )

    def page_of(self, path):
        """Returns the path of the page that shows the file or folder at `path`; None if there is no
        such page."""
        if path in self.folders:
            return next(
                (page for page in (f"{path}/README.md", f"{path}/index.md") if page in self.texts),
                f"{path}/index.md",
            )
        app = path.removesuffix(".html") + ".md"
        if path in apps.APPS and app in self.texts:
            return app
        return path if path in self.texts else f"{path}.md" if path in self.shown else None

    def link(self, page, link):
        path, mark, section = link.partition("#")
        if not path or re.match(r"\w+:", path) or not self.page_of(joined(page, path)):
            return link
        there = self.page_of(joined(page, path))
        return (
            os.path.relpath(
                "index.md" if there == "README.md" else there, os.path.dirname(page) or "."
            )
            + mark
            + section
        )

    def code(self, page, span):
        """Returns inline code in Markdown. If `span` is the name of a file that has a page, the
        code is a link to this page."""
        for path in (joined(page, span), span, f"common/{span}"):
            if path != page and (path in self.shown or ("/" in span and path in self.texts) or
                                 (path in apps.APPS and self.page_of(path))):
                return f"[`{span}`]({os.path.relpath(path, os.path.dirname(page) or '.')})"
        return f"`{span}`"

    def prose(self, page, text):
        def drawing(match):
            path = joined(page, match[2])
            return inline(self.files[path].decode(), match[1]) if path in self.files else match[0]

        text = "".join(
            line
            if line.startswith(("#", "    "))
            else CODE.sub(lambda match: self.code(page, match[1]), line)
            for line in text.splitlines(keepends=True)
        )
        text = PICTURE.sub(lambda match: self.picture(page, match[1], match[2]), text)
        text = DRAWING.sub(drawing, text)
        return LINK.sub(lambda match: f"]({self.link(page, match[1])})", text)

    def picture(self, page, description, light):
        """Returns a picture as HTML. The browser shows its light or its dark file, and its narrow
        or its wide file, as the reader's page needs. If the picture shows a page of the site, it is
        a link to this page."""
        name, folder = light.removesuffix("-light.png"), os.path.dirname(page) or "."

        def address(path):
            return os.path.relpath(joined(page, path), folder)

        narrow = joined(page, f"{name}-narrow-light.png") in self.files
        images = "".join(
            f'<picture class="only-{scheme}">'
            + (f'<source media="(max-width: 600px)" srcset="{address(name)}-narrow-{scheme}.png">'
               if narrow else "")
            + f'<img alt="{html.escape(description)}" src="{address(name)}-{scheme}.png"></picture>'
            for scheme in figures.SCHEMES
        )
        if not self.page_of(joined(page, f"{name}.html")):
            return images
        return (f'<a class="live" href="{address(name)}.html">{images}'
                f"<span>Open this page: choose a step, zoom in, point at what you see</span></a>")

    def text(self, page):
        text = drawings.with_drawings(self.texts[page])
        if page.endswith("HINTS.md"):
            text = re.sub(
                r"^### (\d)\n(.*?)(?=^##|\Z)",
                lambda match: (
                    f"<details><summary>{LEVELS[match[1]]}</summary>\n\n"
                    f"{match[2].strip()}\n\n</details>\n\n"
                ),
                text,
                flags=re.MULTILINE | re.DOTALL,
            )
        table = DOORS.search(text) if page == "README.md" else None
        parts = BLOCK.split(text.replace(table[0], "") if table else text)
        text = "".join(part if i % 2 else self.prose(page, part) for i, part in enumerate(parts))
        if table:  # cards replace the table, after the first paragraph
            title, first, others = text.split("\n\n", 2)
            cards = LINK.sub(lambda match: f"]({self.link(page, match[1])})", doors(table[1]))
            text = "\n\n".join([title, first, cards, others])
        return text + self.below(page)

    def below(self, page):
        """Returns the entries that the sidebar has below this page: the other pages of its folder
        and, for a task, the pages of its extensions."""
        folder = os.path.dirname(page)
        if page == "README.md":
            return self.contents()
        if os.path.basename(page) not in ("README.md", "index.md"):
            return ""
        names = [*(f"{name}.md" for name in self.contracts), *self.texts]
        return toctree(
            [
                name
                for name in names
                if name.startswith((f"{folder}/", f"tasks/extensions/{os.path.basename(folder)}/"))
                and name != page
            ]
        )

    def contents(self):
        """Returns the entries of the sidebar: the tasks in the order of course.toml, and the other
        pages in the order in which README.md names them."""
        first, course = (
            self.texts["README.md"],
            tomllib.loads(self.files.get("course.toml", b"").decode()),
        )
        named = sorted(
            self.texts, key=lambda page: (first.find(page) if page in first else len(first), page)
        )
        groups = {
            "The course": [
                "COURSE.md",
                *(
                    f"tasks/task{task['number']}_{task['name']}/README.md"
                    for task in course.get("task", [])
                ),
                "tasks/GLOSSARY.md",
                "appendix/README.md",
                "common/README.md",
                "trainer/README.md",
                "library/README.md",
                "tasks/WRITEUP.md",
            ],
            "To play with": [name.replace(".html", ".md") for name in apps.APPS],
            "Results": ["figures.md", "writeup/index.md"],
            "The library and the trainer": [page for page in named if page.startswith("docs/")],
            "Around it": [page for page in named if page.startswith("grading/") or "/" not in page],
        }
        trees, done = "", {"README.md"}
        for caption, names in groups.items():
            trees += toctree(
                [name for name in names if name in self.texts and name not in done], caption
            )
            done.update(names)
        return trees

    def source(self, path):
        """Returns the page, as Markdown, of a file or folder that is not Markdown."""
        names = sorted(name for name in self.files if name == path or name.startswith(f"{path}/"))
        page = (
            f"# {os.path.basename(path)}\n\n`{path}`\n"
            if path in self.contracts
            else f"---\norphan: true\n---\n# {path}\n"
        )
        for name in names:
            text = self.files[name].decode()
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            title = f"\n## {os.path.relpath(name, path)}\n" if path in self.folders else ""
            language = LANGUAGES.get(pathlib.PurePosixPath(name).suffix, "text")
            page += f"{title}\n{fence}{{code-block}} {language}\n:force:\n\n{text}\n{fence}\n"
        return page

    def sources(self):
        """Returns a dict, path -> bytes of all sources from which Sphinx makes the site."""
        made = {"index.md" if page == "README.md" else page: self.text(page) for page in self.texts}
        made.update({self.page_of(path): self.source(path) for path in self.shown})
        pictures = {
            name: data
            for name, data in self.files.items()
            if re.match(r"docs/.*\.png$|figures/", name)
        }
        return {**{name: text.encode() for name, text in made.items()}, **pictures}
