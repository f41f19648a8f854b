"""Tests what a handout has and what it must not have: python3 -m unittest discover grading."""

import fnmatch
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile
import unittest

import handout
import skeletons
import texts

LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:href|src|srcset)="([^"]+)""")
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*(?:/|\.[a-z]+)")
KINDS = (".cpp", ".h", ".html", ".md", ".png", ".py", ".sh", ".svg", ".toml", "/")
# A paragraph with one of these texts may name files that students do not get.
EXCUSES = ("not in the students' copy", "Instructors:")
# A path that matches this has a placeholder for a name that the reader chooses, so no file needs to
# have this path.
PLACEHOLDER = re.compile(r"\bNAME\b|task[NK]\b")


def telling_lines(text):
    """Returns the lines of `text` that could give a solution away: those of at least 24 characters
    that are neither comments nor includes."""
    lines = (line.strip() for line in text.splitlines())
    return {line for line in lines if len(line) >= 24 and not line.startswith(("//", "#include"))}


def solution_lines(tasks):
    """Returns the lines of the solutions of these tasks that could give a solution away (see
    telling_lines()), without the lines that files for students also have."""
    given = set()
    for folder in ("common", "trainer", "tests", "programs", "examples", "appendix"):
        for path in (handout.ROOT / folder).rglob("*"):
            if path.suffix in (".h", ".cpp"):
                given |= telling_lines(path.read_text())
    for text in skeletons.delivered().values():
        given |= telling_lines(text.decode())
    lines = set()
    for task in tasks:
        for folder in skeletons.folders_of(f"task{task}_*"):
            for path in (handout.ROOT / "solutions").glob(f"{folder}/*"):
                lines |= telling_lines(path.read_text())
    return lines - given


def found_in(lines, files):
    """Yields "FILE: LINE" for each of `lines` that a file of `files` contains."""
    for name, (data, _) in files.items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue  # a picture, for example
        for line in telling_lines(text) & lines:
            yield f"{name}: {line}"


def paths_in(paragraph):
    """Returns two lists of what a paragraph names: the targets of its links, and the paths and
    names of files in its code spans."""
    links = [first or second for first, second in LINK.findall(paragraph)]
    links = [link.partition("#")[0] for link in links if not re.match(r"\w+:|#", link)]
    spans = [span.partition("#")[0] for span in texts.CODE.findall(paragraph)]
    spans = [span for span in spans if PATH.fullmatch(span) and span.endswith(KINDS)
             and not span.startswith(texts.MADE) and not PLACEHOLDER.search(span)]
    return links, [
        span for span in spans if "/" in span or not span.endswith((".html", ".png", ".svg"))
    ]


def is_there(path, folder, names):
    """Returns whether there is a file or a folder with this path, relative to the root, to the
    page's folder or to a folder of #include. A path that is only a name matches every file of this
    name."""
    if "/" not in path:
        return any(name == path or name.endswith(f"/{path}") for name in names)
    places = (
        os.path.normpath(os.path.join(start, path)) for start in ("", folder, "common", "trainer")
    )
    return any(fnmatch.filter(names, place) for place in places)


def missing_in(files):
    """Yields "PAGE: PATH" for each path that a page of a handout names but the handout lacks."""
    names = {
        *files,
        *(str(folder) for name in files for folder in pathlib.PurePosixPath(name).parents),
    }
    for page, (data, _) in sorted(files.items()):
        if not page.endswith(".md"):
            continue
        folder = os.path.dirname(page)
        for paragraph in re.split(r"\n\s*\n", texts.without_blocks(data.decode())):
            if any(excuse in " ".join(paragraph.split()) for excuse in EXCUSES):
                continue
            links, spans = paths_in(paragraph)
            yield from (
                f"{page}: {link}"
                for link in links
                if os.path.normpath(os.path.join(folder, link)) not in names
            )
            yield from (f"{page}: {span}" for span in spans if not is_there(span, folder, names))


def verbs_in(files):
    """Yields (page, verb) for each verb of ./fsdp that a page among `files` names."""
    for page, (data, _) in sorted(files.items()):
        if page.endswith(".md"):
            for paragraph in re.split(r"\n\s*\n", data.decode()):
                if not any(excuse in paragraph for excuse in EXCUSES):
                    yield from ((page, verb) for verb, _ in texts.COMMAND.findall(paragraph))


def verbs_of_copy(files):
    """Returns the verbs that ./fsdp has in a copy with these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (data, executable) in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o755 if executable else 0o644)
        usage = subprocess.run(
            [pathlib.Path(folder, "fsdp"), "help"], capture_output=True, text=True, check=True
        ).stdout
    return set(re.findall(r"^  ([a-z]+) ", usage, re.MULTILINE))


class Names(unittest.TestCase):
    def test_every_path_that_a_page_of_the_handout_names_is_in_the_handout(self):
        self.assertEqual(list(missing_in(handout.contents(release=2))), [])
        missing = {line.partition(": ")[2] for line in missing_in(handout.contents())}
        self.assertEqual(missing, {"solutions/"})  # only later releases have it

    def test_every_docs_page_and_source_path_that_files_of_the_handout_name_is_in_it(self):
        files = handout.contents(release=2)
        names = {
            *files,
            *(str(folder) for name in files for folder in pathlib.PurePosixPath(name).parents),
        }
        tops = "|".join(
            sorted(
                {name.split("/")[0] for name in handout.tracked() if "/" in name and name[0] != "."}
            )
        )
        paths = re.compile(rf"(?<![\w/<\"$}}.-])((?:{tops})/[\w./-]*\w)")
        for name, (data, _) in files.items():
            named = {path.decode() for path in re.findall(rb"\bdocs/[\w-]+\.\w+", data)}
            if name.startswith(
                ("tasks/", "common/", "trainer/", "tests/", "appendix/", "programs/")
            ) and name.endswith((".h", ".cpp")):
                named |= {
                    path for path in paths.findall(data.decode()) if not PLACEHOLDER.search(path)
                }
            self.assertEqual(named - names, set(), name)

    def test_missing_in_finds_missing_paths_in_links_images_and_code_spans(self):
        page = (
            "`there.md`, `docs/there.md`, [here](there.md#mark), `docs/`, `memory/x.h`, "
            "`build/made.txt`, `W/U`\n\n"
            '`lost.md`, `site/lost.html#limit=1`, [gone](gone.md), <img src="lost.png">, `lost/`, '
            '`memory/y.h`\n\n'
            "`examples/own.cpp` is not in the students'\ncopy.\n\n```\n`output/of.md`\n```\n"
        )
        files = {"docs/there.md": (page.encode(), False), "common/memory/x.h": (b"", False)}
        lost = ("gone.md", "lost.png", "lost.md", "site/lost.html", "lost/", "memory/y.h")
        self.assertEqual(list(missing_in(files)), [f"docs/there.md: {path}" for path in lost])

    def test_a_handout_has_exactly_the_verbs_that_students_use(self):
        students = set(
            """appendix audit build check diff doctor export generate hello help hint inspect
                          leaderboard plot replay reset setup submit tokenize train update
                          why""".split()
        )
        for release in (1, 8):
            self.assertEqual(verbs_of_copy(handout.contents(release)), students)

    def test_every_verb_that_a_page_of_the_handout_names_exists_in_the_handout(self):
        files = handout.contents()
        verbs = verbs_of_copy(files)
        self.assertNotIn("plan", verbs)
        self.assertIn("check", verbs)
        self.assertEqual([named for named in verbs_in(files) if named[1] not in verbs], [])


class Handout(unittest.TestCase):
    def test_a_handout_has_no_line_of_a_solution(self):
        lines = solution_lines(range(8))
        self.assertGreater(len(lines), 300)
        self.assertEqual(list(found_in(lines, handout.contents())), [])

    def test_release_4_has_the_solutions_of_tasks_1_to_3_and_no_others(self):
        files = handout.contents(release=4)
        folders = {name.rpartition("/")[0] for name in files if name.startswith("solutions/")}
        expected = ["solutions/extensions/task2_flat_parameter"]  # 1 and 3 have none
        expected += [f"solutions/task{task}" for task in (1, 2, 3)]
        self.assertEqual([folder if "extensions" in folder else folder.partition("_")[0]
                          for folder in sorted(folders)], expected)
        self.assertEqual(list(found_in(solution_lines(range(4, 8)), files)), [])

    def test_a_handout_has_only_those_files_of_grading_that_verbs_of_students_use(self):
        names = [
            name
            for name in handout.contents()
            if name.startswith(("grading/", "solutions/", ".ci/", "writeup/"))
        ]
        self.assertEqual(
            names,
            [
                "grading/course/skeletons.py",
                "grading/grader/course.py",
                "grading/grader/leaderboard.py",
                "grading/grader/submission.py",
                "grading/leaderboard.py",
                "grading/plot.py",
                "grading/submit.py",
            ],
        )

    def test_a_handout_has_readme_hints_and_pristine_skeletons_for_every_task(self):
        files = handout.contents()
        solutions = handout.ROOT / "solutions"
        for folder in solutions.glob("task*"):
            for name in ("README.md", "HINTS.md"):
                self.assertIn(f"tasks/{folder.name}/{name}", list(files))
        for source in solutions.glob("task*/*.cpp"):
            self.assertIn(f"tasks/{source.relative_to(solutions).as_posix()}", list(files))
        for name in filter(skeletons.is_source, list(files)):
            if name.startswith("tasks/"):
                self.assertEqual(files[f".pristine/{name.removeprefix('tasks/')}"], files[name])

    def test_docs_step_html_of_a_handout_hides_the_order_of_the_actions_of_a_training_step(self):
        page, _ = handout.contents()["docs/step.html"]
        whole = (handout.ROOT / "docs/step.html").read_bytes()
        self.assertIn(b'aria-label="actions" data-students="hidden">', page)
        self.assertIn(b'aria-label="actions" data-students="">', whole)
        with self.assertRaisesRegex(
            skeletons.Refused, "docs/step.html: cannot hide the order of actions"
        ):
            handout.for_students(b"<body>")

    def test_two_archives_of_the_same_files_have_the_same_bytes(self):
        files = {"fsdp": (b"#!/bin/sh\n", True), "common/base/todo.h": (b"", False)}
        with tempfile.TemporaryDirectory() as folder:
            archives = []
            for name in ("a.tar.gz", "b.tar.gz"):
                path = pathlib.Path(folder) / name
                handout.write(path, files, 1_700_000_000)
                archives.append(path.read_bytes())
                with tarfile.open(path) as archive:
                    member = archive.getmember("fsdp-course/fsdp")
                    self.assertEqual((member.mode, member.mtime), (0o755, 1_700_000_000))
            self.assertEqual(archives[0], archives[1])
