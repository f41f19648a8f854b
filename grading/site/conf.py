"""Sphinx's settings for the site. make.py runs Sphinx over the sources that pages.py makes."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import figures  # noqa: E402
import shell  # noqa: E402

project = html_title = "fsdp"
extensions = ["myst_parser"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
highlight_language = "none"
smartquotes = False  # smart quotes would turn -- of an option into one dash

html_theme = "furo"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_show_sphinx = html_show_copyright = html_copy_source = html_use_index = False
html_show_search_summary = False  # summaries need a server
html_theme_options = {
    "top_of_page_buttons": [],
    **{f"{scheme}_css_variables": colors for scheme, colors in figures.SCHEMES.items()},
}
html_sidebars = {"**": ["sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html",
                        "sidebar/navigation.html", "sidebar/scroll-end.html"]}


def setup(app):
    app.add_lexer("shell-session", shell.Lexer)
    app.connect("doctree-read", shell.color_blocks)
