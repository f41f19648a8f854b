"""Tests that Python's torch.load() reads what examples/own_training.cpp saves, and that the example
continues from what torch.save() has written. The test is skipped if .venv-peers has no PyTorch or
if the example is not built."""

import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEERS = ROOT / ".venv-peers/bin/python3"
EXAMPLE = ROOT / "build/default/bin/own_training"

# A Python program that prints the names and the sizes of the tensors in a file, and saves the
# tensors again with ten times their values.
CHANGE = """
import sys, torch
state = torch.load(sys.argv[1], weights_only=False)
print(*(f"{name} {list(tensor.shape)}" for name, tensor in state.items()), sep="\\n")
torch.save({name: 10 * tensor for name, tensor in state.items()}, sys.argv[1])
"""


def first_loss(folder):
    done = subprocess.run([EXAMPLE, folder], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[0].removeprefix("step 0: "))


@unittest.skipUnless(PEERS.exists(), "./fsdp setup --peers installs PyTorch")
@unittest.skipUnless(EXAMPLE.exists(), "./fsdp build own_training")
class StateDict(unittest.TestCase):
    def test_a_state_dict_file_can_be_read_and_written_by_pythons_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            first_loss(folder)
            before = pathlib.Path(folder, "model.pt").read_bytes()
            changed = [PEERS, "-c", CHANGE, f"{folder}/model.pt"]
            listing = subprocess.run(changed, capture_output=True, text=True, check=True).stdout
            self.assertIn("first.linear.weight [64, 64]", listing.splitlines())
            with_python = first_loss(folder)
            pathlib.Path(folder, "model.pt").write_bytes(before)
            self.assertGreater(with_python, 2 * first_loss(folder))
