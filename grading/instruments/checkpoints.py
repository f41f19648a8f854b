#!/usr/bin/env python3
"""Tries what docs/checkpoints.md promises, from outside: with this file's own reader of the format.

1. A run saves sharded and full checkpoints. This program computes the two hashes of the last line of
   --json from the files alone.
2. A run that saves after every step is killed again and again, at random moments, and goes on from
   the latest checkpoint. At the end it has the hashes of a run that nobody disturbed.
3. Checkpoints are damaged at random. Each is refused with one line, and without much memory.
Exits with 1 if anything is not as it should be.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ROOT / "build" / "default" / "bin" / "reference_train"
OPTIONS = ["--model", "gpt2-tiny", "--recipe", "published", "--batch", "8", "--seq", "8", "--parts", "4"]
KINDS = ("", "/exp_avg", "/exp_avg_sq", "/step")


def tensors(path):
    """Name -> (shape, bytes) of a safetensors file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    data = content[8 + length:]
    return {name: (entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def whole_state(folder):
    """Name -> bytes of the parameters and their state, in the order of first registration."""
    description = json.loads((folder / "checkpoint.json").read_text())
    parts = {}
    for file in description["files"]:
        for name, (shape, data) in tensors(folder / file["name"]).items():
            if 4 * math.prod(shape) != len(data):
                raise ValueError(f"{file['name']}: {name} has {len(data)} bytes")
            whole, _, elements = name.partition(":")
            parts.setdefault(whole, {})[int(elements.partition("-")[0] or 0)] = data
    state = {}
    for parameter in description["parameters"]:
        for kind in KINDS:
            ranges = parts.get(parameter["name"] + kind, {})
            ordered = [ranges[begin] for begin in sorted(ranges)]
            state[parameter["name"] + kind] = b"".join(ordered[:1] if kind == "/step" else ordered)
    return state


def hashes(folder):
    """The SHA-256 of the parameters, and that of the whole state."""
    state = whole_state(folder)
    parameters = b"".join(data for name, data in state.items() if "/" not in name)
    return [hashlib.sha256(data).hexdigest() for data in (parameters, b"".join(state.values()))]


def command(ranks, steps, *options, mode="fsdp"):
    return [TRAIN, "--mode", mode, "--world", str(ranks), "--steps", str(steps), *OPTIONS, *options]


def final_hashes(ranks, steps, *options, folder):
    file = folder / "run.json"
    subprocess.run(command(ranks, steps, "--json", file, *options), check=True, stdout=subprocess.DEVNULL)
    last = json.loads(file.read_text().splitlines()[-1])
    return [last["param_sha256"], last["state_sha256"]]


def try_format(folder):
    for form in ("sharded", "full"):
        saved = folder / form
        expected = final_hashes(4, 3, "--checkpoint-dir", saved, "--save-every", "3",
                                "--checkpoint-format", form, folder=folder)
        if hashes(saved / "step-000003") != expected:
            sys.exit(f"{form}: the hashes of the files are not those of the run")
        print(f"{form}: the files have the hashes of the run", flush=True)


def kill_while_saving(folder, kills):
    saved, at = folder / "killed", 0
    chance = random.Random(1)
    for number in range(kills):
        form = ("sharded", "full")[number % 2]
        resume = ["--resume", saved] if at else []
        run = subprocess.Popen(
            command((4, 2, 1)[number % 3], at + 1000, "--checkpoint-dir", saved, "--save-every", "1",
                    "--keep", "2", "--checkpoint-format", form, *resume),
            stdout=subprocess.DEVNULL, start_new_session=True)
        # Where it is when it has saved a step, and some time after that, is a matter of chance.
        while latest(saved) <= at and run.poll() is None:
            time.sleep(0.001)
        time.sleep(chance.random() * 0.05)
        os.killpg(run.pid, signal.SIGKILL)
        if run.wait() != -signal.SIGKILL:
            sys.exit(f"run {number} ended by itself")
        at = latest(saved)
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], check=True,
                       cwd=saved / f"step-{at:06}")
    steps = at + 1
    disturbed = final_hashes(4, steps, "--resume", saved, folder=folder)
    if disturbed != final_hashes(4, steps, folder=folder):
        sys.exit("the run that was killed has other hashes than the one that was not")
    print(f"killed {kills} times in {steps} steps: the hashes are those of a run that nobody disturbed")


def latest(saved):
    folders = saved.glob("step-[0-9]*") if saved.exists() else ()
    return max((int(f.name[5:]) for f in folders if f.name[5:].isdigit()), default=0)


def damage(folder, chance):
    """Flips a bit of a file, or cuts it off; returns what it did."""
    path = chance.choice(sorted(folder.iterdir()))
    content = bytearray(path.read_bytes())
    place = chance.randrange(min(len(content), chance.choice((8, 200, len(content)))))
    if chance.random() < 0.25:
        path.write_bytes(content[:place])
        return f"{path.name} cut off after {place} bytes"
    content[place] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    return f"a bit of byte {place} of {path.name}"


def try_damaged(folder, count):
    chance = random.Random(2)
    for number in range(count):
        copy = folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / ("sharded", "full")[number % 2] / "step-000003", copy)
        what = damage(copy, chance)
        run = subprocess.run(command(2, 4, "--resume", copy), capture_output=True, text=True, timeout=100)
        if run.returncode not in (1, 2) or len(run.stderr.splitlines()) != 1 or str(copy) not in run.stderr:
            sys.exit(f"{what}: status {run.returncode}, and it said:\n{run.stderr}")
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    print(f"{count} damaged checkpoints: each refused with one line; at most {most} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--damaged", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try_format(pathlib.Path(folder))
        kill_while_saving(pathlib.Path(folder), arguments.kills)
        try_damaged(pathlib.Path(folder), arguments.damaged)


if __name__ == "__main__":
    main()
