"""Makes pages of the site from the HTML pages that also work without the site: docs/step.html and,
if this copy has it, docs/timeline.html."""

import re

# HTML file -> title and first paragraph of its page on the site; None: they are taken from the
# file.
APPS = {
    "docs/step.html": None,
    "docs/timeline.html": (
        "A step of four ranks",
        "`./fsdp train --mode fsdp --world 4 --model small --steps 3 --trace timeline.html` wrote "
        "this page. Choose a step, zoom in, and point at a span, a collective or an area.",
    ),
}


def page(text, about):
    """Returns the HTML `text` as a Markdown page. The styles in it apply only to its own part of
    the page. `about`: a value of APPS."""
    styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    body = re.search(r"<body[^>]*>(.*)</body>", text, re.DOTALL)[1]
    if about is None:
        header = re.search(r"<header>\s*<h1>(.*?)</h1>(.*?)</header>", body, re.DOTALL)
        title, first = header[1], ""
        body = body.replace(header[0], f"<header>{header[2]}</header>")
    else:
        title, first = about
        body = re.sub(r"(</?)h1\b", r"\1h2", body)
    return (
        f"---\nhide-toc: true\n---\n# {title}\n\n{first}\n\n```{{raw}} html\n"
        f"<style>.app {{{styles}}}</style>\n<div class=\"app\">{body}</div>\n```\n"
    )


def pages(files):
    """Returns a dict, path -> Markdown, with a page of the site for each HTML file of APPS that is
    among `files`."""
    return {
        name.replace(".html", ".md"): page(files[name].decode(), about)
        for name, about in APPS.items()
        if name in files
    }
