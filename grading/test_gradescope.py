"""Tests what goes into Gradescope's autograder (grading/gradescope.py)."""

import unittest

import gradescope
from course import handout


class Autograder(unittest.TestCase):
    def test_the_autograder_has_every_file_that_grading_needs(self):
        names = set(gradescope.names())
        for name in (
            "fsdp",
            "CMakeLists.txt",
            "course.toml",
            "grading/grade.py",
            "grading/grader/grade.py",
            "grading/rubric.toml",
            "grading/course/skeletons.py",
            "scripts/look.sh",
            "scripts/verbs/grade.sh",
            "scripts/verbs/setup.sh",
            "solutions/task2_flat_parameter/flat_parameter.cpp",
            "tasks/task2_flat_parameter/flat_parameter.cpp",
            "tests/task2_flat_parameter/",
            "programs/check.cpp",
        ):
            self.assertTrue(any(other.startswith(name) for other in names), name)

    def test_the_autograder_has_no_file_that_grading_does_not_need(self):
        for other in (
            "docs/",
            "writeup/",
            "library/",
            "examples/",
            "appendix/",
            "programs/reproduce",
            "tests/common/",
            "tests/gpu/",
            "grading/test_",
            "grading/faults",
            "grading/exploits",
            "grading/honest_submissions",
            "grading/submissions",
            "grading/second_solution",
            "grading/unsharded",
            "grading/peers/",
            "grading/gradescope",
            "a_new_folder/",
            "grading/a_new_list.toml",
        ):
            self.assertFalse(other.startswith(gradescope.IN), other)
            self.assertEqual([name for name in gradescope.names() if name.startswith(other)], [])
        self.assertLess(len(gradescope.names()), len(handout.tracked()) * 0.75)
