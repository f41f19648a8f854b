"""Tests rooms.py, the check of the includes of comm, launch, hosts and transports, the "rooms" of
common/README.md: python3 -m unittest discover grading/course."""

import unittest

import rooms

README = """
Solutions include 1 of its headers, which include 1 others: about 0 lines.

| Room | What it is for | Headers for others |
|---|---|---|
| `comm/` | calls | `communicator.h` |
| `launch/` | ranks of one host | `launcher.h` |
"""
USED = {"library/fsdp.h": {"common/comm/communicator.h", "common/launch/launcher.h"}}


def broken(includes):
    return list(rooms.broken_rooms({**USED, **includes}, README))


class Rooms(unittest.TestCase):
    def test_a_file_of_common_launch_may_include_a_header_of_common_comm(self):
        self.assertEqual(broken({"common/launch/launcher.cpp": {"common/comm/ledger.h"}}), [])

    def test_a_file_of_common_comm_that_includes_a_header_of_common_launch_is_reported(self):
        self.assertEqual(
            broken({"common/comm/ledger.cpp": {"common/launch/hosts.h"}}),
            [
                "common/comm/ledger.cpp includes common/launch/hosts.h: "
                "comm/ knows nothing of launch/"
            ],
        )

    def test_a_file_of_common_launch_that_includes_a_header_of_common_trace_is_reported(self):
        self.assertEqual(
            broken({"common/launch/run.cpp": {"common/trace/recorder.h"}}),
            [
                "common/launch/run.cpp includes common/trace/recorder.h: "
                "launch/ knows nothing of trace/"
            ],
        )

    def test_a_trainer_file_that_includes_a_comm_header_missing_in_the_readme_is_reported(self):
        self.assertEqual(
            broken({"trainer/train/run.cpp": {"common/comm/ledger.h"}}),
            [
                "trainer/train/run.cpp includes common/comm/ledger.h, which common/README.md does "
                "not list for files outside comm/"
            ],
        )

    def test_a_launch_header_listed_in_the_readme_that_no_file_outside_includes_is_reported(self):
        includes = {"library/fsdp.h": {"common/comm/communicator.h"}}
        self.assertEqual(
            list(rooms.broken_rooms(includes, README)),
            ["common/README.md lists launch/launcher.h, which no file outside the rooms includes"],
        )


class HeadersThatAStudentMeets(unittest.TestCase):
    INCLUDES = {
        "tasks/task1_x/x.h": {"common/nn/a.h"},
        "common/nn/a.h": {"common/nn/b.h"},
        "common/nn/b.h": set(),
    }

    def wrong(self, includes):
        return list(rooms.wrong_count(dict.fromkeys(includes, ""), includes, README))

    def test_a_wrong_number_of_headers_for_students_in_the_readme_is_reported(self):
        self.assertEqual(self.wrong(self.INCLUDES), [])
        more = {**self.INCLUDES, "common/nn/b.h": {"common/nn/c.h"}, "common/nn/c.h": set()}
        self.assertEqual(
            self.wrong(more),
            [
                "common/README.md does not say: Solutions include 1 of its headers, which include "
                "2 others: about 0 lines."
            ],
        )


if __name__ == "__main__":
    unittest.main()
