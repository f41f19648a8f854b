"""The comparison of the texts with runs: python3 -m unittest discover grading/course."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from course import break_it, equations, measure  # noqa: E402


class Equations(unittest.TestCase):
    def test_a_wrong_one_is_found(self):
        for text in ("it is 3 x 4 = 13 bytes", "3/4 x 4 x (96 - 32) = 193;", "a (4 + 2) / 4 = 1.6.",
                     "624 = 4 x 155 is", "8 x 4 x 80,411,200 = 2.9 GB"):
            self.assertEqual(len(list(equations.wrong_equations(text))), 1, text)

    def test_a_right_one_is_not(self):
        for text in ("it is 3 x 4 = 12 bytes", "W = 2, 3", "R + 2U = 2,049,024 + 2 x 4 = 2,049,032.",
                     "2.34 + 0.33 + 0.25 = 2.91 GB", "120 / 84 = 1.43."):
            self.assertEqual(list(equations.wrong_equations(text)), [], text)


class BreakIt(unittest.TestCase):
    TEST = "T3_4_rough_ground.after_an_exception_no_unit_stays_unsharded"
    ANSWER = f"""
   `{TEST}` fails. It finds `root blocks1` unsharded.

   With the reference solution, no other test of task 3 fails.
   """

    def setUp(self):
        self.step = {"task": 3, "number": 1, "says": [[self.TEST, "root blocks1"]]}
        self.red = {self.TEST: {"W2": 'is "root blocks1 "'}}

    def wrong(self, red, **changes):
        return list(break_it.differences({**self.step, **changes}, self.ANSWER, red))

    def test_an_answer_that_is_right_is_not_complained_of(self):
        self.assertEqual(self.wrong(self.red), [])

    def test_a_named_test_has_to_fail(self):
        self.assertIn("which passes", self.wrong({})[0])

    def test_a_test_that_is_said_to_pass_has_to_pass(self):
        self.assertIn("is said to pass", " ".join(self.wrong(self.red, passes=list(self.red))))

    def test_a_failing_test_that_the_answer_does_not_mention_is_found(self):
        red = {**self.red, "T3_2_post_forward.only_the_root_stays_unsharded_for_backward": {"W1": ""}}
        self.assertEqual(self.wrong(red), ["its answer must say, once: With the reference solution, other "
                                           "tests of problem 3.2 fail as well."])

    def test_numbers_of_ranks_and_quoted_words_are_compared(self):
        test, = self.red
        self.assertIn("fails on W 2;", self.wrong(self.red, ranks=[[test, "23", "It finds"]])[0])
        self.assertIn("does not print", self.wrong(self.red, says=[[test, "unsharded"]])[0])


class Measure(unittest.TestCase):
    def test_the_command_of_a_row_is_the_one_of_the_handout(self):
        rows = {row["name"]: row for row in measure.load()}
        row = rows["task 4, Measure, the same without resharding"]
        self.assertEqual(
            measure.command_of(row),
            "./fsdp train --stack mine --mode fsdp --world 4 --model small --steps 2 --json t4.json "
            "--reshard-after-forward off")
        ddp = measure.command_of(rows["task 4, Measure, `all_reduce` bytes of a step with DDP"])
        self.assertEqual(ddp, "./fsdp train --stack mine --mode ddp --world 4 --model small --steps 2 "
                              "--json t4.json")
        self.assertEqual(measure.here(measure.command_of(row), row["table"])[1:3], ("--mode", "fsdp"))

    def test_every_row_has_something_to_show(self):
        for row in measure.load():
            self.assertTrue(row["shows"] or row.get("near"), row["name"])


if __name__ == "__main__":
    unittest.main()
