"""Tests the bank of faults and the functions for banks, without compiling anything."""

import argparse
import contextlib
import io
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import changed
import faults
import lists

FAULT = {
    "name": "sum",
    "task": 2,
    "mistake": "Nobody divides.",
    "file": "flat_layout.cpp",
    "old": "no such line",
    "new": "",
    "test": "T2_1_layout.no_such_test",
    "message": "the sum",
}


class Changes(unittest.TestCase):
    def test_each_old_text_becomes_the_new_one(self):
        change = {"file": "a.cpp", "old": "one", "new": "1", "old_2": "two", "new_2": ""}
        self.assertEqual(changed.replaced("one, two;", change, "it"), "1, ;")

    def test_an_old_text_that_is_not_there_once_or_a_change_that_changes_nothing_is_refused(self):
        for text, new in (("two", ""), ("one one", ""), ("one", "one")):
            with self.assertRaisesRegex(
                changed.Refused, r"sum: its `old` occurs [012] times in a.cpp"
            ):
                changed.replaced(text, {"file": "a.cpp", "old": "one", "new": new}, "sum")


class Chosen(unittest.TestCase):
    """Tests what --changed selects from a list of 20 entries, each with a file of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root, self.before = pathlib.Path(folder.name), lists.ROOT
        lists.ROOT = self.root
        self.addCleanup(setattr, lists, "ROOT", self.before)
        self.entries = [{"name": f"entry number {i:02}", "file": f"{i}.cpp"} for i in range(20)]

    @staticmethod
    def files_of(entry):
        return {entry["file"]}

    def chosen(self, changed=(), added="", fixed=2, most=3):
        found = lists.changed_entries(self.entries, self.files_of, set(changed), added, fixed, most)
        return [int(entry["name"][-2:]) for entry in found]

    def test_a_fixed_part_is_always_the_same(self):
        self.assertEqual([self.chosen(), self.chosen(fixed=4)], [[0, 10], [0, 5, 10, 15]])

    def test_an_entry_is_chosen_if_one_of_its_files_or_a_line_of_it_has_changed(self):
        self.assertEqual(self.chosen({"3.cpp", "other.cpp"}), [0, 3, 10])
        self.assertEqual(self.chosen(added='["entry number 07"]\n'), [0, 7, 10])

    def test_of_many_changed_entries_at_most_so_many_are_chosen(self):
        self.assertEqual(self.chosen({f"{i}.cpp" for i in range(1, 10)}, fixed=0), [1, 4, 7])

    def test_what_has_passed_is_chosen_again_only_after_it_or_its_file_changes(self):
        (self.root / "0.cpp").write_text("a")
        arguments = argparse.Namespace(totals=None)
        for wrong, left in (("broken", [0, 10]), ("", [10])):
            with self.assertRaises(SystemExit), contextlib.redirect_stdout(io.StringIO()):
                lists.play(arguments, self.entries[:1], lambda _, wrong=wrong: wrong, self.files_of)
            self.assertEqual(self.chosen(), left)
        (self.root / "0.cpp").write_text("b")
        self.assertEqual(self.chosen(), [0, 10])
        (self.root / "0.cpp").write_text("a")
        self.entries[0]["new"] = "line"
        self.assertEqual(self.chosen(), [0, 10])

    def test_changes_are_counted_from_the_last_commit_but_one_or_from_where_the_branch_left_main(
        self,
    ):
        git = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b"]
        (self.root / "scripts").mkdir()
        shutil.copy(self.before / "scripts/build.sh", self.root / "scripts")

        def commit(name):
            (self.root / name).write_text("")
            for words in (["add", "-A"], ["commit", "-q", "-m", name]):
                subprocess.run([*git, *words], check=True)

        subprocess.run([*git, "init", "-q"], check=True)
        commit("first")
        self.assertEqual(lists.changed_files(), set())
        commit("second")
        commit("third")
        (self.root / "new").write_text("")
        self.assertEqual(lists.changed_files(), {"third", "new"})
        subprocess.run([*git, "update-ref", "refs/remotes/origin/main", "HEAD~2"], check=True)
        self.assertEqual(lists.changed_files(), {"second", "third", "new"})


class Bank(unittest.TestCase):
    def test_a_wrong_test_file_or_field_is_found(self):
        found = list(
            faults.wrong_forms(
                [FAULT, {**FAULT, "file": "gone.cpp"}, {**FAULT, "leads_to": "nowhere"}]
            )
        )
        for wrong in (
            "no test T2_1_layout.no_such_test",
            "occurs 0 times",
            "no file gone.cpp",
            "leads_to",
        ):
            self.assertTrue(any(wrong in line for line in found), (wrong, found))

    def test_a_skeleton_is_emptied(self):
        skeleton = (
            'int Unit::size() const {\n  todo("Unit::size", "2.1");\n}\nvoid f() {\n  todo("f", '
            '"2.2");\n}'
        )
        self.assertEqual(
            faults.emptied(skeleton), "int Unit::size() const { return {}; }\nvoid f() {}"
        )
