import unittest

import layers

README = """
Solutions include 1 of its headers, which include 1 others: about 0 lines.

| Room | What it is for | Headers for others |
|---|---|---|
| `comm/` | calls | `communicator.h` |
| `launch/` | ranks of one host | `launcher.h` |
"""


class Rooms(unittest.TestCase):
    def broken(self, includes):
        used = {"library/fsdp.h": {"common/comm/communicator.h", "common/launch/launcher.h"}}
        return list(layers.broken_rooms({**used, **includes}, README))

    def test_a_room_includes_the_rooms_before_it(self):
        self.assertEqual(self.broken({"common/launch/launcher.cpp": {"common/comm/ledger.h"}}), [])

    def test_a_room_includes_no_room_after_it(self):
        self.assertEqual(self.broken({"common/comm/ledger.cpp": {"common/launch/hosts.h"}}),
                         ["common/comm/ledger.cpp includes common/launch/hosts.h: comm/ knows nothing of launch/"])

    def test_no_room_includes_what_observes_it(self):
        self.assertEqual(self.broken({"common/launch/run.cpp": {"common/trace/recorder.h"}}),
                         ["common/launch/run.cpp includes common/trace/recorder.h: launch/ knows nothing of trace/"])

    def test_files_outside_the_rooms_include_the_listed_headers_only(self):
        self.assertEqual(self.broken({"trainer/train/run.cpp": {"common/comm/ledger.h"}}),
                         ["trainer/train/run.cpp includes common/comm/ledger.h, which common/README.md does not list "
                          "for files outside comm/"])

    def test_a_listed_header_is_included_by_somebody(self):
        self.assertEqual(list(layers.broken_rooms({"library/fsdp.h": {"common/comm/communicator.h"}}, README)),
                         ["common/README.md lists launch/launcher.h, which no file outside the rooms includes"])


class Counts(unittest.TestCase):
    def test_headers_that_a_header_includes_are_counted(self):
        includes = {"tasks/task1_x/x.h": {"common/nn/a.h"}, "common/nn/a.h": {"common/nn/b.h"}, "common/nn/b.h": set()}
        self.assertEqual(list(layers.wrong_count(dict.fromkeys(includes, ""), includes, README)), [])
        includes["common/nn/b.h"] = {"common/nn/c.h"}
        includes["common/nn/c.h"] = set()
        self.assertEqual(list(layers.wrong_count(dict.fromkeys(includes, ""), includes, README)),
                         ["common/README.md does not say: Solutions include 1 of its headers, which include 2 others: "
                          "about 0 lines."])


if __name__ == "__main__":
    unittest.main()
