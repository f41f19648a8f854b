"""The verbs that students use: python3 -m unittest discover grading."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import skeletons  # noqa: E402

SKELETON = "tasks/task3_forward_hooks/forward_hooks.cpp"


class Verbs(unittest.TestCase):
    """Each in a copy of its own that holds what the verbs read."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="a course ")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("scripts", "tasks", "solutions", "programs"):
            shutil.copytree(skeletons.ROOT / name, self.root / name)
        (self.root / "grading").mkdir()
        for name in ("fsdp", "course.toml", "grading/skeletons.py"):
            shutil.copy(skeletons.ROOT / name, self.root / name)
        (self.root / ".venv").symlink_to(skeletons.ROOT / ".venv")

    def run_verb(self, *arguments):
        command = [self.root / "fsdp", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_hint_tells_one_level_and_where_the_next_is(self):
        hints = (self.root / "tasks/task3_forward_hooks/HINTS.md").read_text()
        for level in ("1", "2", "3"):
            status, text = self.run_verb("hint", "3.2", level)
            self.assertEqual(status, 0, text)
            self.assertIn(text.splitlines()[0], hints)
            self.assertEqual("More: ./fsdp hint 3.2" in text, level != "3")
        self.assertEqual(self.run_verb("hint", "3.2"), self.run_verb("hint", "3.2", "1"))

    def test_hint_refuses_what_is_no_problem_or_level(self):
        for arguments in ((), ("3",), ("8.1",), ("3.2", "4")):
            status, text = self.run_verb("hint", *arguments)
            self.assertEqual(status, 2, text)
            self.assertIn("fsdp: hint", text)
        self.assertEqual(self.run_verb("hint", "3.9")[0], 1)

    def test_reset_gives_the_first_state_back_and_keeps_what_was_there(self):
        first = (self.root / SKELETON).read_text()
        for number in (1, 2):
            (self.root / SKELETON).write_text(f"// mine, {number}\n")
            (self.root / SKELETON).with_name("helper.h").write_text("// mine too\n")
            status, text = self.run_verb("reset", "3")
            self.assertEqual(status, 0, text)
            self.assertEqual((self.root / SKELETON).read_text(), first)
            backup = self.root / f".backup/task3_forward_hooks-{number}"
            self.assertIn(f"kept in .backup/task3_forward_hooks-{number}", text)
            self.assertEqual((backup / "forward_hooks.cpp").read_text(), f"// mine, {number}\n")
            self.assertEqual((backup / "helper.h").read_text(), "// mine too\n")

    def test_reset_takes_the_first_state_that_a_handout_carries(self):
        pristine = self.root / ".pristine/task3_forward_hooks"
        pristine.mkdir(parents=True)
        for path in (self.root / SKELETON).parent.glob("*.[hc]*"):
            (pristine / path.name).write_text("// pristine\n")
        shutil.rmtree(self.root / "grading")
        shutil.rmtree(self.root / "solutions")
        self.assertEqual(self.run_verb("reset", "3")[0], 0)
        self.assertEqual((self.root / SKELETON).read_text(), "// pristine\n")

    def test_reset_leaves_alone_what_is_as_at_first(self):
        status, text = self.run_verb("reset", "3")
        self.assertEqual(status, 0, text)
        self.assertIn("nothing to do", text)
        self.assertFalse((self.root / ".backup").exists())
        self.assertEqual(self.run_verb("reset", "9")[0], 2)

    def test_help_has_the_verbs_of_this_copy(self):
        (self.root / "grading/skeletons.py").unlink()
        text = self.run_verb("help")[1]
        self.assertIn("  hint PROBLEM", text)
        self.assertNotIn("  handout OUT", text)
        status, text = self.run_verb("handout", "x.tar.gz")
        self.assertEqual(status, 2)
        self.assertIn("unknown verb 'handout'", text)


if __name__ == "__main__":
    unittest.main()
