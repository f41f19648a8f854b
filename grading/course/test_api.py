"""How docs/api.md is made: python3 -m unittest discover grading/course."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import api  # noqa: E402

HEADER = """#pragma once

namespace fsdp {

struct Tape;  // what is recorded

// Counts the calls of a module:
//   CallCount count(net);
// and of
// - the modules below it,
//   however deep;
// - nothing else.
// May be moved.
class CallCount {
 public:
  explicit CallCount(Module& module);

  class Handle {
   public:
    void remove();

   private:
    int secret_;
  };

  int64_t calls() const { return calls_; }

 private:
  friend class Module;
  int64_t calls_{};
};

// Calls of one kind.
template <class Kind>
class CallsOf;

template <class Kind>
class [[nodiscard]] Counting {
 public:
  Counting();
};

namespace counts {

int64_t all();   // of all modules
int64_t most();  // of one module

}  // namespace counts
}  // namespace fsdp
"""


class Api(unittest.TestCase):
    def setUp(self):
        self.found = list(api.entities(api.body(HEADER)[1]))

    def test_a_declaration_has_the_names_and_the_namespace_that_it_is_used_by(self):
        self.assertEqual([(space, api.names(code)) for space, _, code in self.found],
                         [("", ["Tape"]), ("", ["CallCount"]), ("", ["CallsOf"]), ("", ["Counting"]),
                          ("counts::", ["all", "most"])])

    def test_nothing_private_is_shown(self):
        shown = api.shown(self.found[1][2])
        self.assertIn("void remove();\n  };\n\n  int64_t calls()", shown)
        for hidden in ("private", "friend", "secret_", "calls_{}"):
            self.assertNotIn(hidden, shown)

    def test_examples_and_lists_of_a_comment_stay_what_they_are(self):
        self.assertEqual(api.prose(self.found[1][1]),
                         "Counts the calls of a module:\n\n    CallCount count(net);\n\nand of\n\n"
                         "- the modules below it,\n  however deep;\n- nothing else.\n\nMay be moved.")

    def test_every_header_of_the_list_has_a_section(self):
        page = api.page()
        headers = [name for _, names in api.chapters((api.ROOT / api.LIST).read_text()) for name in names]
        self.assertGreater(len(headers), 20)
        for header in headers:
            self.assertIn(f"\n### `<{header}>`\n", page)


if __name__ == "__main__":
    unittest.main()
