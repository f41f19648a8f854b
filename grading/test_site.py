"""Tests what the site of ./fsdp site has, that its links are right, and that it loads nothing from
a network."""

import html.parser
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "site"), str(HERE / "course")]
import make  # noqa: E402
import results  # noqa: E402
import test_handout  # noqa: E402

# The plain links that leave the site, to sources. Nothing is loaded from there.
OUTWARD = {
    "https://arxiv.org/abs/2506.09280",
    "https://arxiv.org/abs/2512.15306",
    "https://arxiv.org/abs/2602.22437",
    "https://github.com/IST-DASLab/llmq",
    "https://github.com/InfiniTensor/InfiniTrain",
    "https://github.com/NVIDIA/Megatron-LM/issues/5659",
    "https://github.com/NVIDIA/Megatron-LM/pull/4835",
    "https://github.com/pradyunsg/furo",
    "https://github.com/pytorch/pytorch/issues/40581",
    "https://github.com/pytorch/torchtitan/pull/3782",
}
INSTALLED = all(
    importlib.util.find_spec(name) for name in ("sphinx", "myst_parser", "furo", "matplotlib")
)


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.text = set(), set(), ""
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("id", "name"):
                self.ids.add(value)
            if name in ("href", "src", "srcset", "data", "action", "xlink:href") and not (
                tag == "a" and value in OUTWARD
            ):
                self.links.add(value)

    def handle_data(self, data):
        self.text += data


def wrong_links(folder):
    """Returns the links and loaded files of all pages that do not exist or are outside of the
    folder."""
    pages = {path: Page(path) for path in folder.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            there = (
                pathlib.Path(os.path.normpath(path.parent / urllib.parse.unquote(url.path)))
                if url.path
                else path
            )
            if (url.scheme or url.netloc or folder not in there.parents or not there.is_file()
                    or (url.fragment and there in pages and url.fragment not in pages[there].ids)):
                yield f"{path.relative_to(folder)}: {link}"


class Table(unittest.TestCase):
    def test_says_in_colour_what_is_as_published(self):
        text = results.shown([{"W": "1", "published": "2.0", "GB": "2.1", "": "ok"},
                              {"W": "2", "published": "", "GB": "x", "": "NOT OK"}])
        self.assertIn('| +5.0% | <span class="ok">ok</span> |', text)
        self.assertIn('| x |  | <span class="not-ok">NOT OK</span> |', text)

    def test_replaces_no_folder_that_is_not_a_site(self):
        done = subprocess.run([sys.executable, make.__file__, HERE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no site; name a new folder", done.stderr)


@unittest.skipUnless(INSTALLED, "Sphinx is missing: run ./fsdp setup --site")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.files = {"whole": make.files_of(False), "students": make.files_of(True)}
        for name, files in cls.files.items():
            make.build(files, cls.folder / name)

    def test_every_link_leads_to_a_page_and_a_section_and_nothing_is_loaded_from_a_network(self):
        for name in self.files:
            self.assertEqual(list(wrong_links(self.folder / name)), [])
            for path in (self.folder / name).rglob("*.css"):
                self.assertNotRegex(path.read_text(), r"url\(\s*['\"]?(https?:|//)|@import")

    def test_the_site_of_students_has_no_line_of_a_solution(self):
        paths = [path for path in (self.folder / "students").rglob("*") if path.is_file()]
        texts = {
            str(path.relative_to(self.folder)): (
                Page(path).text.encode() if path.suffix == ".html" else path.read_bytes(),
                False,
            )
            for path in paths
        }
        self.assertEqual(
            list(test_handout.found_in(test_handout.solution_lines(range(8)), texts)), []
        )
        given = test_handout.telling_lines(
            self.files["students"]["tasks/task1_meta_init/meta_init.h"].decode()
        )
        self.assertTrue(
            any("meta_init.h.html" in found for found in test_handout.found_in(given, texts))
        )

    def test_has_a_page_for_every_text_and_every_contract(self):
        for name, files in self.files.items():
            pages = [
                path.removesuffix(".md")
                for path in files
                if path.endswith(".md") and path[0] != "." and path != "README.md"
            ]
            pages += [path for path in files if re.fullmatch(r"tasks/.*\.h", path)]
            pages += [
                f"common/{path}"
                for path in re.findall(r"^\| `(\S+\.h)`", files["common/README.md"].decode(), re.M)
            ]
            self.assertEqual(
                [page for page in pages if not (self.folder / name / f"{page}.html").is_file()], []
            )
            tasks = re.findall(
                r'href="tasks/task(\d)_\w+/README.html">Task',
                (self.folder / name / "index.html").read_text(),
            )
            self.assertEqual(list(dict.fromkeys(tasks)), list("01234567"))

    def test_the_drawings_have_the_colours_of_their_page(self):
        drawings = re.findall(
            r'<div class="figure".*?</div>', (self.folder / "whole/figures.html").read_text()
        )
        self.assertGreaterEqual(len(drawings), 6)
        for drawing in drawings:
            self.assertNotRegex(drawing, r"(?<!, )#[0-9a-f]{6}\b")

    def test_a_link_that_leads_nowhere_makes_no_site(self):
        text = b"# A page\n\n[a](nowhere.md), [b](#elsewhere), [c](gone.cpp), ![d](lost.png)\n"
        with self.assertRaises(make.Broken) as raised:
            make.build({"README.md": text}, self.folder / "broken")
        for name in ("nowhere", "elsewhere", "gone.cpp", "lost.png"):
            self.assertIn(name, str(raised.exception))
        self.assertFalse((self.folder / "broken").exists())

    def test_holds_the_page_to_play_with_and_links_it_where_there_is_one(self):
        out = self.folder / "small"
        files = {"README.md": b"# A page\n", "docs/more.md": b"# More\n\nOpen `docs/step.html`.\n"}
        make.build({**files, "docs/step.html": b"the step"}, out)
        self.assertEqual(list(wrong_links(out)), [])
        self.assertEqual((out / "docs/step.html").read_bytes(), b"the step")
        text = (out / "docs/more.html").read_text()
        self.assertEqual(
            text.count('href="../docs/step.html"') + text.count('href="step.html"'),
            2,
            "sidebar and text",
        )
        make.build(files, out)
        self.assertNotIn('step.html"', (out / "docs/more.html").read_text())


if __name__ == "__main__":
    unittest.main()
