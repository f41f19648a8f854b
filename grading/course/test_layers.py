"""Tests which includes break a rule of the layers: python3 -m unittest discover grading/course."""

import unittest

import layers

CONTRACT = "tasks/task5_sharded_optimizer/sharded_optimizer.h"
PRIVATE = "solutions/task5_sharded_optimizer/sharded_optimizer_impl.h"
OF_EXTENSION = "solutions/extensions/task5_sharded_optimizer/clip.h"


def broken(includes):
    """Returns the broken rules. `includes`: path -> the paths that it includes."""
    named = {target for targets in includes.values() for target in targets}
    return list(layers.broken_rules({**{path: set() for path in named}, **includes}))


class Layers(unittest.TestCase):
    def test_common_and_trainer_except_strategies_fsdp_must_not_include_a_task_header(self):
        for path, allowed in (
            ("library/a.cpp", True),
            ("programs/a.cpp", True),
            ("trainer/strategies/fsdp/a.cpp", True),
            ("trainer/train/a.cpp", False),
            ("common/nn/a.cpp", False),
            (PRIVATE, True),
        ):
            self.assertEqual(not broken({path: {CONTRACT}}), allowed, path)

    def test_only_files_of_solutions_may_include_a_private_header_of_a_solution(self):
        for private in (PRIVATE, OF_EXTENSION):
            for path in ("library/a.cpp", "programs/a.cpp", "trainer/strategies/fsdp/a.cpp"):
                self.assertEqual(
                    broken({path: {private}}),
                    [
                        f"{path} includes {private}: another stack has other files; "
                        "include a header of tasks/"
                    ],
                )
            for path in (
                "solutions/task5_sharded_optimizer/a.cpp",
                "solutions/extensions/task5_sharded_optimizer/a.cpp",
            ):
                self.assertEqual(broken({path: {private}}), [])

    def test_a_circle_of_includes_between_modules_or_between_files_is_reported(self):
        [modules] = broken(
            {"common/nn/a.cpp": {"common/optim/a.h"}, "common/optim/b.cpp": {"common/nn/b.h"}}
        )
        self.assertIn("modules in a circle: ", modules)
        [files] = broken({"common/nn/a.h": {"common/nn/b.h"}, "common/nn/b.h": {"common/nn/a.h"}})
        self.assertIn("files in a circle: ", files)

    def test_the_includes_of_the_repository_break_no_rule_of_the_layers(self):
        self.assertEqual(list(layers.broken_rules(layers.included(layers.sources()))), [])


if __name__ == "__main__":
    unittest.main()
