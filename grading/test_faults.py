"""The bank of faults, and lists in general, without compiling anything."""

import argparse
import unittest

import changed
import faults
import lists

FAULT = {"name": "sum", "task": 2, "mistake": "Nobody divides.", "file": "flat_layout.cpp", "old": "no such line",
         "new": "", "test": "T2_1_layout.no_such_test", "message": "the sum"}


class Changes(unittest.TestCase):
    def test_each_old_text_becomes_the_new_one(self):
        change = {"file": "a.cpp", "old": "one", "new": "1", "old_2": "two", "new_2": ""}
        self.assertEqual(changed.replaced("one, two;", change, "it"), "1, ;")

    def test_an_old_text_that_is_not_there_once_or_a_change_that_changes_nothing_is_refused(self):
        for text, new in (("two", ""), ("one one", ""), ("one", "one")):
            with self.assertRaisesRegex(changed.Refused, r"sum: its `old` occurs [012] times in a.cpp"):
                changed.replaced(text, {"file": "a.cpp", "old": "one", "new": new}, "sum")

    def test_parts_together_are_the_whole_list(self):
        parts = [lists.chosen(range(10), argparse.Namespace(only=None, part=f"{i}/3")) for i in (3, 4, 5)]
        self.assertEqual(sorted(sum(parts, [])), list(range(10)))


class Bank(unittest.TestCase):
    def test_a_wrong_test_file_or_field_is_found(self):
        found = list(faults.wrong_forms([FAULT, {**FAULT, "file": "gone.cpp"}, {**FAULT, "leads_to": "nowhere"}]))
        for wrong in ("no test T2_1_layout.no_such_test", "occurs 0 times", "no file gone.cpp", "leads_to"):
            self.assertTrue(any(wrong in line for line in found), (wrong, found))

    def test_a_skeleton_is_emptied(self):
        skeleton = 'int Unit::size() const {\n  todo("Unit::size", "2.1");\n}\nvoid f() {\n  todo("f", "2.2");\n}'
        self.assertEqual(faults.emptied(skeleton), "int Unit::size() const { return {}; }\nvoid f() {}")
