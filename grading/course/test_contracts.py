"""What counts as a sentence of a contract, and that none can be added or lost unseen."""

import pathlib
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import contracts  # noqa: E402

HEADER = """#pragma once

// Keeps one thing. Throws std::invalid_argument (from check()) if there are two.
// - It frees the rest.
class Keeper {
 public:
  int count() const;  // of things

  // An example:
  //   Keeper keeper;
  // Does it return? Never.
  void keep();

 private:
  int count_;  // not a promise
};

}  // namespace fsdp
"""

HANDOUT = """## Invariants

- One thing stays. The
  rest goes.

## Problem

Easy to get wrong:

- Who frees it? The last owner does.
- `a` may throw. Worth
  knowing: this is none.
"""


class Sentences(unittest.TestCase):
    def test_of_a_header_are_its_public_comments(self):
        found = [s for part in contracts.comments_of(HEADER) for s in contracts.sentences(part)]
        self.assertEqual(
            found,
            [
                "Keeps one thing.",
                "Throws std::invalid_argument (from check()) if there are two.",
                "It frees the rest.",
                "of things",
                "Never.",
            ],
        )

    def test_of_a_handout_are_invariants_and_what_is_easy_to_get_wrong(self):
        found = [s for part in contracts.items_of(HANDOUT) for s in contracts.sentences(part)]
        self.assertEqual(
            found, ["One thing stays.", "The rest goes.", "The last owner does.", "`a` may throw."]
        )


class Table(unittest.TestCase):
    def problems(self, texts, table):
        with (
            mock.patch.object(contracts, "contracts", lambda: iter(texts)),
            mock.patch.object(contracts, "entries", lambda: table),
            mock.patch.object(contracts, "faults", lambda: {"leak": "T2_2_shard.frees"}),
        ):
            return list(contracts.problems())

    def test_a_sentence_without_an_entry_is_told(self):
        (problem,) = self.problems([("a.h", "Frees it.")], [])
        self.assertEqual(problem, "a.h: no test asks for 'Frees it.'")

    def test_an_entry_whose_sentence_is_gone_is_told(self):
        (problem,) = self.problems([], [("a.h", "Frees it.", ["leak"])])
        self.assertIn("is not in its text", problem)

    def test_an_entry_needs_a_fault_that_exists_or_a_text(self):
        texts = [("a.h", "Frees it.")]
        for what, message in (([], "has no fault"), ("", "has no fault"), (["gone"], "there is no fault gone")):
            self.assertIn(message, " ".join(self.problems(texts, [(*texts[0], what)])))
        for what in (["leak"], "what it is for"):
            self.assertEqual(self.problems(texts, [(*texts[0], what)]), [])


if __name__ == "__main__":
    unittest.main()
