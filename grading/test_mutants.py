"""The mutants without compiling anything: what is made of a statement, what is kept, what is listed."""

import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "instruments")]
import mutants  # noqa: E402
from grader import course  # noqa: E402
from mutation import switches  # noqa: E402

SOURCE = """#include <unit.h>

namespace fsdp {

void Unit::begin(size_t first, size_t last, bool ahead) {
  at::NoGradGuard no_grad;  // "};"
  if (ahead && first < last) issue(first);
  gather_ = comm_->all_gather_into(full_.slice(0, first), shard_, unit_);
  memory_ = comm_->empty(last);
  auto self = shared_from_this();
  on_end([self, weak = std::weak_ptr(other)] { self->end(first + 1); });
  for (size_t i = first; i < last; ++i)
    units_[i]->unshard();
  return;
}

}  // namespace fsdp
"""


TEST = "T2_5_flat_gradient.a_missing_gradient_counts_as_zero/W2"


def changes(text, **arguments):
    return {(m.old, m.new) for m in switches.mutate("unit.cpp", text, **arguments)[1]}


class Switches(unittest.TestCase):
    def assert_made(self, old, *new):
        made = {n for o, n in changes(SOURCE) if o == old}
        self.assertLessEqual(set(new), made)

    def test_changes_conditions_operands_and_indices(self):
        line = "if (ahead && first < last) issue(first);"
        self.assert_made(line, line.replace("&&", "||"), line.replace("<", "<="), line.replace("(first)", "(last)"),
                         "if (true) issue(first);", "if (false) issue(first);", "if (ahead) issue(first);")
        self.assert_made("units_[i]->unshard();", "units_[0]->unshard();", "units_[i]->unshard_async();")

    def test_leaves_statements_out_and_moves_them(self):
        for line in ("at::NoGradGuard no_grad;", "units_[i]->unshard();", "memory_ = comm_->empty(last);"):
            self.assert_made(line, "left out")
        self.assert_made("memory_ = comm_->empty(last);", "moved up")

    def test_waits_at_once_copies_a_view_and_takes_private_memory(self):
        line = "gather_ = comm_->all_gather_into(full_.slice(0, first), shard_, unit_);"
        self.assert_made(line, line[:-1] + "; gather_.wait();", line.replace("first)", "first).clone()"))
        self.assert_made("memory_ = comm_->empty(last);", "memory_ = at::empty(last);")

    def test_owns_what_was_weak_and_lets_go_of_what_was_owned(self):
        line = "on_end([self, weak = std::weak_ptr(other)] { self->end(first + 1); });"
        self.assert_made(line, line.replace("self,", "self = fsdp::unowned(self),"),
                         line.replace("std::weak_ptr(other)", "fsdp::held(std::weak_ptr(other))"))

    def test_leaves_out_the_mutants_that_do_not_compile(self):
        text, made = switches.mutate("unit.cpp", SOURCE)
        dropped = made[3]
        less, still = switches.mutate("unit.cpp", SOURCE, dropped={dropped.key})
        self.assertEqual(still, made)  # the others keep their numbers
        self.assertIn(f"mutant() == {dropped.number} ", text)
        self.assertNotIn(f"mutant() == {dropped.number} ", less)

    def test_every_mutant_of_the_solutions_has_a_key_a_number_and_a_switch(self):
        for task in course.tasks():
            files, made = mutants.mutate(task)
            numbers = list(range(1, len(made) + 1))
            self.assertEqual(len({m.key for m in made}), len(made))
            self.assertEqual([m.number for m in made], numbers)
            text = "".join(files.values())
            found = re.findall(r"mutant\(\) [!=]= (\d+)|(?:unowned|held)\((\d+),", text)
            self.assertEqual({int(a or b) for a, b in found} - {0}, set(numbers))
            self.assertEqual(text.count("{"), text.count("}"))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        kept = mock.patch.object(mutants, "KEPT", pathlib.Path(folder.name) / "mutants.json")
        self.addCleanup(kept.stop)
        kept.start()
        self.mutant = switches.mutate("unit.cpp", SOURCE)[1][0]

    def test_keeps_a_kill_while_the_file_stays_and_a_survivor_while_the_tests_do(self):
        mutants.Results(False).keep(self.mutant.key, "", "tests of today")
        self.assertEqual(mutants.Results(False).of(self.mutant, "tests of today"), "")
        self.assertIsNone(mutants.Results(False).of(self.mutant, "tests of tomorrow"))
        mutants.Results(False).keep(self.mutant.key, TEST, "tests of today")
        self.assertEqual(mutants.Results(False).of(self.mutant, "tests of tomorrow"), TEST)
        self.assertIsNone(mutants.Results(True).of(self.mutant, "tests of today"))
        mutants.Results(False).keep(self.mutant.key, "T2_9_gone.there_was_one/W2", "tests of today")
        self.assertIsNone(mutants.Results(False).of(self.mutant, "tests of today"))
        mutants.Results(False).keep(self.mutant.key, TEST, "tests of today")
        changed = switches.mutate("unit.cpp", SOURCE + "\n")[1][0]
        self.assertIsNone(mutants.Results(False).of(changed, "tests of today"))

    def test_finds_the_mutant_of_a_compiler_error(self):
        task = course.tasks()[1]
        text, made = switches.mutate("unit.cpp", SOURCE)
        lines = text.splitlines()
        at = next(i for i, line in enumerate(lines, 1) if line.endswith(f"{switches.MARK}{made[2].number}"))
        log = f"/x/graded/{task.folder}/unit.cpp:{at}:7: error: no match for 'operator||'\n"
        self.assertEqual(mutants.wrong_mutants(log, task, {"unit.cpp": text}, made), {made[2]})

    def test_an_entry_holds_only_while_no_test_kills_its_mutant(self):
        task = course.tasks()[1]
        with mock.patch("builtins.print") as told:
            self.assertEqual(mutants.judge(task, self.mutant, "", listed=True), "equivalent")
            self.assertEqual(mutants.judge(task, self.mutant, TEST, listed=False), "killed")
            told.assert_not_called()
            self.assertEqual(mutants.judge(task, self.mutant, TEST, listed=True), "contradicted")
            self.assertIn(TEST, told.call_args[0][0])
            self.assertEqual(mutants.judge(task, self.mutant, "", listed=False), "survived")
            self.assertIn(self.mutant.new, told.call_args[0][0])

    def test_refuses_an_entry_that_is_no_mutant(self):
        entry = ("flat_layout.cpp", "flat_layout", "int64_t end = 0;", "int64_t end = 7;")
        self.assertEqual(len(mutants.check({entry})), 1)
        real = mutants.place(mutants.mutate(course.tasks()[1])[1][0])
        self.assertEqual(mutants.check({real}), [])


if __name__ == "__main__":
    unittest.main()
