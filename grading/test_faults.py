"""Tests the functions of faults.py, changed.py and lists.py, which check the faults in
grading/faults/, without compiling anything."""

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
    def test_replaced_puts_each_new_text_in_the_place_of_its_old_text(self):
        change = {"file": "a.cpp", "old": "one", "new": "1", "old_2": "two", "new_2": ""}
        self.assertEqual(changed.replaced("one, two;", change, "it"), "1, ;")

    def test_replaced_refuses_an_old_text_that_does_not_occur_once_or_equals_the_new_one(self):
        for text, new in (("two", ""), ("one one", ""), ("one", "one")):
            with self.assertRaisesRegex(
                changed.Refused, r"sum: its `old` occurs [012] times in a.cpp"
            ):
                changed.replaced(text, {"file": "a.cpp", "old": "one", "new": new}, "sum")


class Chosen(unittest.TestCase):
    """Tests which entries --changed selects from a list of 20 entries, each with a file of its
    own."""

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

    def test_if_no_file_has_changed_the_option_changed_selects_the_same_few_bank_entries(self):
        self.assertEqual([self.chosen(), self.chosen(fixed=4)], [[0, 10], [0, 5, 10, 15]])

    def test_the_option_changed_selects_bank_entries_of_changed_files_or_with_added_lines(self):
        self.assertEqual(self.chosen({"3.cpp", "other.cpp"}), [0, 3, 10])
        self.assertEqual(self.chosen(added='["entry number 07"]\n'), [0, 7, 10])

    def test_the_option_changed_selects_at_most_the_given_number_of_changed_bank_entries(self):
        self.assertEqual(self.chosen({f"{i}.cpp" for i in range(1, 10)}, fixed=0), [1, 4, 7])

    def test_a_bank_entry_that_passed_is_selected_again_only_after_it_or_its_file_changes(self):
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

    def test_changed_files_returns_files_changed_since_origin_main_or_else_since_the_parent_commit(
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
    def test_wrong_forms_reports_a_fault_with_a_missing_test_or_file_or_a_wrong_field(self):
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

    def test_emptied_replaces_each_todo_function_by_one_that_returns_an_empty_value(self):
        skeleton = (
            'int Unit::size() const {\n  todo("Unit::size", "2.1");\n}\nvoid f() {\n  todo("f", '
            '"2.2");\n}'
        )
        self.assertEqual(
            faults.emptied(skeleton), "int Unit::size() const { return {}; }\nvoid f() {}"
        )
