"""Tests the pages and the links of the site that ./fsdp site makes, and that the site loads nothing
from a network."""

import html
import html.parser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "site"), str(HERE / "course")]
import drawings  # noqa: E402
import figures  # noqa: E402
import make  # noqa: E402
import pages  # noqa: E402
import results  # noqa: E402
import test_handout  # noqa: E402

# The links of the site that lead to other sites. They are plain links to sources: the site loads
# nothing from them.
OUTWARD = {
    "https://arxiv.org/abs/2407.21783",
    "https://arxiv.org/abs/2506.09280",
    "https://arxiv.org/abs/2512.15306",
    "https://arxiv.org/abs/2602.22437",
    "https://deepspeed.readthedocs.io/en/latest/memory.html",
    "https://github.com/IST-DASLab/llmq",
    "https://github.com/InfiniTensor/InfiniTrain",
    "https://github.com/NVIDIA/Megatron-LM/issues/5659",
    "https://github.com/NVIDIA/Megatron-LM/pull/4835",
    "https://github.com/NVIDIA/nccl-tests/issues/149",
    "https://github.com/NVIDIA/nccl/issues/495",
    "https://github.com/huggingface/accelerate/blob/00e4d264f66d9694ba6116a0dbe7ecec83655b43/"
    "src/accelerate/commands/estimate.py",
    "https://github.com/pradyunsg/furo",
    "https://github.com/pytorch/pytorch/issues/40581",
    "https://github.com/pytorch/torchtitan/blob/041336434916bdc0f88c1f89fda176fd3c2092e4/docs/"
    "performance.md",
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
    """Yields "PAGE: LINK" for each link, or loaded file, of the site in `folder` whose target does
    not exist or is outside of the folder."""
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


def text_of_page(path, *options):
    """Returns the HTML of the page after Chromium has run its scripts; None if this machine has no
    Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                   f"--user-data-dir={folder}", "--virtual-time-budget=20000", *options,
                   path.as_uri()]
        return subprocess.run(command, capture_output=True, text=True).stdout


class Drawing(unittest.TestCase):
    def drawn(self, text):
        drawing = drawings.figure(text).partition("<svg")[2].partition("</svg>")[0]
        return drawing, re.findall(r"<text[^>]*>(.*?)</text>", drawing)

    def test_the_drawing_of_a_schedule_has_a_coloured_bar_for_each_computation_and_collective(self):
        drawing, words = self.drawn(" computes   ....2==========|....1==|\n"
                                    " link       2--|............r2-|1--|\n")
        self.assertEqual(re.findall(r"var\(--([\w-]+)\)", drawing),
                         ["backward", "backward", "all-gather", "reduce-scatter", "all-gather"])
        self.assertEqual(words, ["2", "1", "2", "r2", "1", "computes", "link"])
        forward, _ = self.drawn("forward, no prefetch\n  computes  ......0====|......1====|\n")
        self.assertEqual(forward.count("--forward"), 2)

    def test_lines_and_arrows_of_a_text_figure_are_drawn_but_hyphens_stay_text(self):
        drawing, words = self.drawn("x -> all-gather of W - 1 <--- y\n")
        self.assertEqual(words, ["x", "all-gather of W - 1", "y"])
        self.assertEqual(drawing.count('class="head"'), 2)

    def test_a_text_figure_is_drawn_with_cells_between_its_vertical_bars_unless_it_is_a_tree(self):
        self.assertEqual(self.drawn(" rank 0 | rows 0 | step |\n")[0].count("<rect"), 2)
        tree = " |- h     ModuleList |  no unit\n |   |- 0  Block  |  h.0\n"
        self.assertEqual(self.drawn(tree)[0].count("<rect"), 0)

    def test_every_letter_of_a_handouts_figure_is_in_its_drawing(self):
        paths = (*ROOT.glob("tasks/*/README.md"), ROOT / "appendix/README.md")
        figures = [(path, text) for path in paths
                   for text in drawings.FIGURE.findall(path.read_text())]
        self.assertGreaterEqual(len(figures), 19)
        for path, text in figures:
            words = html.unescape(" ".join(self.drawn(text)[1]))
            with self.subTest(f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"):
                self.assertEqual(sorted(re.findall(r"[A-Za-uw-z]", words)),
                                 sorted(re.findall(r"[A-Za-uw-z]", text)))  # v may be an arrow
                self.assertIn(f"<pre>{html.escape(text.rstrip())}</pre>", drawings.figure(text))

    def test_every_text_drawing_of_a_handout_is_in_a_code_block_of_the_language_figure(self):
        for path in ROOT.glob("tasks/*/README.md"):
            text = drawings.FIGURE.sub("", path.read_text())
            self.assertNotRegex(text, r"-->|<--|==\|", path)


class Timeline(unittest.TestCase):
    PARTS = ROOT / "common/trace/page"

    def test_docs_timeline_html_contains_the_present_files_of_common_trace_page(self):
        text = (ROOT / "docs/timeline.html").read_text()
        for name in ("timeline.css", "data.js", "drawing.js", "moving.js"):
            self.assertIn((self.PARTS / name).read_text(), text,
                          f"docs/timeline.html is older than {name}; make it again with ./fsdp "
                          f"train --mode fsdp --world 4 --model small --steps 3 --trace FILE")

    def test_every_memory_class_has_a_colour_on_the_timeline(self):
        names = re.findall(r'"(\w+)"', (ROOT / "common/memory/memory_class.cpp").read_text())
        text = (self.PARTS / "data.js").read_text()
        colors = re.search(r"CLASS_COLORS = \{(.*?)\}", text, re.DOTALL)[1]
        shown = re.search(r"SHOWN_CLASSES = \[(.*?)\]", text, re.DOTALL)[1]
        self.assertEqual(sorted(re.findall(r"(\w+):", colors)), sorted(names))
        self.assertEqual(sorted(re.findall(r"'(\w+)'", shown)), sorted(names))

    def test_the_timelines_labels_are_beside_the_lanes_or_on_a_narrow_page_above_them(self):
        for width, inside in ((1280, "side"), (500, "lanes")):
            text = text_of_page(ROOT / "docs/timeline.html", f"--window-size={width},900")
            if text is None:
                self.skipTest("missing: chromium")
            lanes = text.partition("<main")[2].partition("</main>")[0]
            rows = lanes.split('<div class="row rank">')[1:]
            self.assertEqual(len(rows), 4)
            for row in rows:
                side, lanes = row.split('<div class="lanes">')
                labels = {"side": side, "lanes": lanes}
                self.assertEqual(labels[inside].count("<em "), 3, (width, row))
                self.assertEqual(row.count("<em "), 3)


class Parts(unittest.TestCase):
    def test_the_first_three_kinds_of_readers_in_the_table_of_readme_md_become_cards(self):
        rows = ("| a student | write it | [C](C.md) |\n| an engineer | use it | [L](L.md) |\n"
                "| | train | [T](T.md) |\n| an instructor | grade | [I](I.md) |\n"
                "| a contributor | change it | [X](X.md) |\n")
        text = pages.doors(rows)
        self.assertEqual(text.count("{container} door\n"), 3)
        self.assertIn("**You are an engineer**\n\n- [Use it](L.md)\n- [Train](T.md)\n```", text)
        self.assertTrue(text.endswith("````\n\nYou are a contributor: [Change it](X.md)."), text)

    def test_every_row_of_fsdp_reproduce_has_a_title_of_its_own(self):
        names = {row.name for row in results.rows(make.files_of(False))}
        self.assertEqual(names, set(results.TITLES))
        self.assertEqual(len(set(results.TITLES.values())), len(names))

    def test_the_page_of_a_result_names_the_document_that_published_it(self):
        row = results.Row("x", "Manual, Loop", "planned", 1, "all", "x", "./fsdp x")
        page = results.page(row, "# ./fsdp\nrun\n\n## A table\n", [], {"Manual": "Report"})
        self.assertIn("published in *Manual* (Report), at Loop. The course computes it", page)
        documents = results.documents(make.files_of(False))
        for row in results.rows(make.files_of(False)):
            self.assertIn(re.match(r"\w+", row.source)[0], documents)

    def test_make_prints_the_progress_of_sphinx_in_steps_of_ten_percent(self):
        told = []
        lines = ("loading...", "reading sources... [  3%] a", "reading sources... [ 41%] b",
                 "reading sources... [ 47%] c", "writing output... [100%] d")
        make.progress(lines, told.append)
        self.assertEqual(told, ["reading sources: 40 %", "writing output: 100 %"])


class Table(unittest.TestCase):
    def test_a_results_table_has_coloured_verdicts_and_the_difference_from_published_values(self):
        text = results.shown([{"W": "1", "published": "2.0", "GB": "2.1", "": "ok"},
                              {"W": "2", "published": "", "GB": "x", "": "NOT OK"}])
        self.assertIn('| +5.0% | <span class="ok">ok</span> |', text)
        self.assertIn('| x |  | <span class="not-ok">NOT OK</span> |', text)

    def test_make_refuses_to_replace_a_folder_that_is_not_a_site(self):
        done = subprocess.run([sys.executable, make.__file__, HERE], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is no site; name a new folder", done.stderr)


@unittest.skipUnless(INSTALLED, "Sphinx is missing: run ./fsdp setup --site")
class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(unittest.mock.patch.object(make, "say"))
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.files = {"whole": make.files_of(False), "students": make.files_of(True)}
        for name, files in cls.files.items():
            make.build(files, cls.folder / name)

    def test_every_link_of_the_site_has_a_target_and_nothing_is_loaded_from_a_network(self):
        for name in self.files:
            self.assertEqual(list(wrong_links(self.folder / name)), [])
            for path in (self.folder / name).rglob("*.css"):
                self.assertNotRegex(path.read_text(), r"url\(\s*['\"]?(https?:|//)|@import")

    def test_the_site_made_for_students_has_no_line_of_a_solution(self):
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

    def test_the_site_has_a_page_for_every_markdown_file_and_every_task_header(self):
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

    def test_the_figures_in_a_page_use_the_pages_colours(self):
        drawings = re.findall(
            r'<div class="figure".*?</div>', (self.folder / "whole/figures.html").read_text()
        )
        # Two figures are not drawn: duke needs a GPU, and the last full run of gpt2xl kept no
        # losses.
        self.assertEqual(len(drawings), len(figures.ROWS) - 2)
        for drawing in drawings:
            self.assertNotRegex(drawing, r"(?<!, )#[0-9a-f]{6}\b")

    def page(self, site, name):
        return (self.folder / site / name).read_text()

    def test_the_first_page_has_cards_and_a_picture_that_links_to_the_timeline(self):
        text = self.page("whole", "index.html")
        for page in ("COURSE.html", "docs/library.html", "grading/INSTRUCTORS.html"):
            self.assertIn(f'href="{page}"', text.partition('"doors ')[2].partition("</section>")[0])
        link = re.search(r'<a class="live" href="docs/timeline.html">(.*?)</a>', text, re.DOTALL)[1]
        for name in ("timeline-dark", "timeline-narrow-dark", "timeline-light"):
            self.assertIn(f"docs/{name}.png", link)
            self.assertTrue((self.folder / f"whole/docs/{name}.png").is_file())

    def test_step_html_and_timeline_html_are_pages_of_the_site(self):
        for site, name in (("whole", "step"), ("whole", "timeline"), ("students", "step")):
            text = self.page(site, f"docs/{name}.html")
            self.assertIn("sidebar-brand", text)
            self.assertEqual(len(re.findall(r"<h1[ >]", text)), 1, name)
            self.assertIn(f'href="docs/{name}.html">', self.page(site, "index.html"))
        self.assertIn('data-students="hidden"', self.page("students", "docs/step.html"))
        self.assertIn('data-students=""', self.page("whole", "docs/step.html"))
        self.assertFalse((self.folder / "students/docs/timeline.html").exists())
        self.assertIn('<a class="reference internal" href="../../docs/step.html"',
                      self.page("whole", "tasks/task6_prefetch/README.html"))

    def test_the_scripts_of_step_html_work_inside_of_the_site(self):
        text = text_of_page(self.folder / "whole/docs/step.html")
        if text is None:
            self.skipTest("missing: chromium")
        command = re.search(r'<code id="command">(.*?)</code>', text)[1]
        self.assertIn("./fsdp plan --mode fsdp --world 4", re.sub(r"<[^>]*>", "", command))
        self.assertRegex(text, r'<p id="sentence"[^>]*>Before the step')

    def test_commands_and_cpp_code_are_coloured_but_the_output_of_commands_is_not(self):
        text = self.page("whole", "docs/training.html")
        command = '<span class="nf">./fsdp train</span> <span class="na">--mode</span> fsdp'
        self.assertIn(command, text)
        self.assertIn('<span class="go">  #0        all_gather root', text)
        self.assertIn('<div class="highlight-cpp ', self.page("whole", "docs/library.html"))
        self.assertNotRegex(text, r'"highlight-none [^>]*><[^>]*><pre>(<[^>]*>)*\./fsdp')

    def test_every_coloured_block_of_code_has_a_button_that_copies_it(self):
        text = text_of_page(self.folder / "whole/docs/training.html")
        if text is None:
            self.skipTest("missing: chromium")
        blocks = len(re.findall(r'class="highlight-(?!none|text)', text))
        self.assertGreater(blocks, 5)
        self.assertEqual(text.count('class="copy"'), blocks)

    def test_a_link_without_a_target_fails_the_build_and_no_site_is_made(self):
        text = b"# A page\n\n[a](nowhere.md), [b](#elsewhere), [c](gone.cpp), ![d](lost.png)\n"
        with self.assertRaises(make.Broken) as raised:
            make.build({"README.md": text}, self.folder / "broken")
        for name in ("nowhere", "elsewhere", "gone.cpp", "lost.png"):
            self.assertIn(name, str(raised.exception))
        self.assertFalse((self.folder / "broken").exists())

    def test_the_site_has_and_links_step_html_only_if_the_copy_has_it(self):
        out = self.folder / "small"
        files = {"README.md": b"# A page\n", "docs/more.md": b"# More\n\nOpen `docs/step.html`.\n"}
        step = b"<body><header><h1>Step</h1><p>One.</p></header><p>the step</p></body>"
        make.build({**files, "docs/step.html": step}, out)
        self.assertEqual(list(wrong_links(out)), [])
        self.assertIn("<p>the step</p>", (out / "docs/step.html").read_text())
        text = (out / "docs/more.html").read_text()
        links = text.count('<a class="reference internal" href="step.html"')
        self.assertEqual(links, 2, "sidebar and text")
        make.build(files, out)
        self.assertNotIn('step.html"', (out / "docs/more.html").read_text())


if __name__ == "__main__":
    unittest.main()
