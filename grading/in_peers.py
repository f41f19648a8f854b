"""Lets tests that need Hugging Face's packages run in the Python of .venv-peers, which has them."""

import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers/bin/python3"


def in_peers(module, packages, is_there):
    """Returns a test case that runs the tests of `module`, a file of grading/, in the Python of
    .venv-peers. The test case is skipped if that Python lacks one of `packages`, or if the present
    Python has them (`is_there`), because the tests then run directly."""

    @unittest.skipIf(is_there, f"this Python has {packages[-1]}")
    class InPeers(unittest.TestCase):
        def test_the_tests_that_need_hugging_faces_packages_pass_in_the_python_of_venv_peers(self):
            has = [PEERS, "-c", f"import {', '.join(packages)}"]
            if not PEERS.exists() or subprocess.run(has, capture_output=True).returncode:
                self.skipTest(f"{packages[-1]} is not installed; ./fsdp setup --peers installs it")
            command = [PEERS, "-m", "unittest", module]
            done = subprocess.run(command, cwd=ROOT / "grading", capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    InPeers.__module__ = module
    InPeers.__qualname__ = "InPeers"
    return InPeers
