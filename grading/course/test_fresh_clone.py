"""Tests fresh_clone.py: python3 -m unittest discover grading/course."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import fresh_clone

PAGE = """# A page

    ./fsdp train --steps 3 \\
        --world 2      # a comment
    it trains
    scripts/rules.sh    # another one

```
    ./fsdp output
```

    FSDP_STACK=second ./fsdp check [TASK]
`./fsdp appendix tensors` prints:
"""


class Lines(unittest.TestCase):
    def test_lines_of_text_finds_the_commands_in_indented_blocks_and_ignores_output(self):
        lines = fresh_clone.lines_of_text("a.md", PAGE)
        self.assertEqual(
            [fresh_clone.command_of(line, {}) for line in lines],
            [
                "./fsdp train --steps 3 --world 2",
                "scripts/rules.sh",
                "FSDP_STACK=second ./fsdp check ",
                "./fsdp appendix tensors",
            ],
        )

    def test_command_of_replaces_placeholders_by_values_and_options_by_shorter_ones(self):
        line = fresh_clone.Line(
            "a.md", 1, "P grading/x.py OUT.zip DIR/NAME --DIR ...", {"shorter": {"x.py": "y.py"}}
        )
        self.assertEqual(fresh_clone.command_of(line, {"OUT": "out", "DIR": "folder"}),
                         ".venv/bin/python3 grading/y.py out.zip folder/NAME --DIR")
        with self.assertRaises(fresh_clone.Refused):
            fresh_clone.command_of(
                fresh_clone.Line(
                    "a.md", 1, "./fsdp train", {"shorter": {"--steps 5": "--steps 1"}}
                ),
                {},
            )

    def test_only_a_command_that_runs_an_already_built_program_keeps_the_build_folder(self):
        for text, keeps in (
            ("./fsdp hello", False),
            ("FSDP_DEBUG=1 gdb x", True),
            ("build/default/bin/check", True),
            ("A=1 ./fsdp check 'a  # b'", False),
            ("ctest -L task2", True),
        ):
            self.assertEqual(fresh_clone.Line("a.md", 1, text).keeps_build, keeps, text)

    def test_the_table_has_the_help_of_every_verb_and_commands_of_the_pages(self):
        lines, settings = fresh_clone.load()
        typed = {fresh_clone.command_of(line, settings["words"]) for line in lines}
        help_text = fresh_clone.usage()
        for verb in ("install", "check", "train", "hello", "bench", "quiz"):
            self.assertIn(f"  {verb} ", help_text)
            self.assertIn(f"./fsdp {verb} --help", typed)
        for line in (
            "./fsdp install $PWD/prefix",
            "./fsdp reproduce",
            "./fsdp appendix meta",
            "./fsdp check 7.9",
        ):
            self.assertIn(line, typed)


class FakeClone:
    """Stands for a Clone. run() records the command and whether the folder build/ existed at that
    time, and returns the status and the output that the constructor got."""

    def __init__(self, folder, status=0, printed="fine"):
        self.folder, self.answer, self.typed, self.really = folder, (status, printed), [], False

    def run(self, command, seconds):
        self.typed.append((command, (self.folder / "build").exists()))
        (self.folder / "build").mkdir(exist_ok=True)
        return self.answer


class Verdicts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def attempt(self, expected, **answer):
        line = fresh_clone.Line("a.md", 1, "./fsdp hello", expected)
        return fresh_clone.attempt(FakeClone(self.folder, **answer), line, {})

    def test_attempt_reports_a_command_whose_status_output_or_files_are_not_as_expected(self):
        for expected, answer, differs in (
            ({}, {}, ""),
            ({"status": 2}, {"status": 2}, ""),
            ({"says": "f.ne"}, {}, ""),
            ({}, {"status": 1}, "status 1, not 0"),
            ({"status": 1}, {}, "status 0, not 1"),
            ({}, {"status": None}, "has not ended"),
            ({"says": "right"}, {}, "does not print 'right'"),
            ({}, {"printed": "x\nTraceback (most"}, "prints 'Traceback'"),
            ({"makes": ["out.zip"]}, {}, "has not made out.zip"),
            ({"before": ["cp a b"]}, {"status": 1}, "before it, cp a b: status 1"),
        ):
            said = self.attempt(expected, **answer)
            self.assertTrue(said.startswith(differs) and bool(said) == bool(differs), said)

    def test_attempt_removes_build_before_each_command_that_does_not_run_built_programs(self):
        clone = FakeClone(self.folder)
        for text, expected in (
            ("./fsdp hello", {"before": ["cp a b"]}),
            ("./fsdp plan", {}),
            ("ctest -L task2", {}),
        ):
            fresh_clone.attempt(clone, fresh_clone.Line("a.md", 1, text, expected), {})
        self.assertEqual(
            clone.typed,
            [
                ("cp a b", False),
                ("./fsdp hello", False),
                ("./fsdp plan", False),
                ("ctest -L task2", True),
            ],
        )


class Compiler(unittest.TestCase):
    """Tests compiler_of_clone.sh, the compiler of the clone. The object in the finished build has
    the text "finished", so that a copied object can be told from a compiled one."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (
            ("root/common/a.cpp", "int a;\n"),
            ("root/build/default/a.o", "finished"),
            ("clone/common/a.cpp", "int a;\n"),
            ("root/build/default/bin/mine_train", "finished"),
            ("clone/build/default/include/made.h", ""),
            ("needs", "a.o\tinclude/made.h\nb.o\tgone.h\n"),
        ):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.build = self.folder / "clone/build/default"

    def call(self, *words, **more):
        environment = {
            "FRESH_CLONE": f"{self.folder}/clone",
            "FRESH_ROOT": f"{self.folder}/root",
            "FRESH_BUILD": f"{self.folder}/root/build/default",
            "FRESH_NEEDS": f"{self.folder}/needs",
            "FRESH_CXX": "c++",
            **more,
        }
        return subprocess.run(
            [fresh_clone.HERE / "compiler_of_clone.sh", *words],
            cwd=self.build,
            capture_output=True,
            text=True,
            env={**os.environ, **environment},
        )

    def compiled(self, output="a.o"):
        done = self.call(
            "-MD", "-MF", "a.d", "-o", output, "-c", f"{self.folder}/clone/common/a.cpp"
        )
        made = self.build / output
        return done, made.read_bytes() if made.exists() else None

    def test_the_compiler_of_the_clone_copies_an_object_if_its_source_is_unchanged(self):
        done, made = self.compiled()
        self.assertEqual((done.returncode, made), (0, b"finished"), done.stderr)
        self.assertEqual(
            (self.build / "a.d").read_text(), f"a.o: {self.folder}/clone/common/a.cpp\n"
        )

    def test_the_compiler_of_the_clone_fails_if_a_needed_file_was_not_made_before(self):
        (self.build / "include/made.h").unlink()
        done, made = self.compiled()
        self.assertEqual((done.returncode, made), (1, None))
        self.assertEqual(
            done.stderr, "a.o: error: include/made.h is missing, and no step before has made it\n"
        )

    def test_the_compiler_of_the_clone_compiles_changed_sources_and_missing_objects(self):
        self.assertEqual(self.compiled("c.o")[1][:4], b"\x7fELF")
        (self.folder / "clone/common/a.cpp").write_text("int b;\n")
        self.assertEqual(self.compiled()[1][:4], b"\x7fELF")

    def test_the_compiler_of_the_clone_copies_a_program_or_links_it_if_files_of_tasks_differ(self):
        (self.build / "bin").mkdir()
        self.assertEqual(self.call("-o", "bin/mine_train").returncode, 0)
        self.assertEqual((self.build / "bin/mine_train").read_text(), "finished")
        # If FRESH_TASKS is set, compiler_of_clone.sh runs the real compiler, FRESH_CXX. In this
        # test the real compiler fails, because the command names no object to link.
        self.assertNotEqual(self.call("-o", "bin/mine_train", FRESH_TASKS="others").returncode, 0)


if __name__ == "__main__":
    unittest.main()
