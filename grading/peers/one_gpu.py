#!/usr/bin/env python3
"""Compares the speed of our FSDP on one GPU with PyTorch's FSDP2, DDP and an eager loop.

All programs compute in bf16 with fp32 master parameters, and train the same GPT-2 on the same rows,
one program after another. Each run writes a line of JSON when it ends, so the lines of finished
runs stay if a later run is interrupted. --dry does the same with a tiny model on the CPU."""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import bench
from sizes import LR, MODELS

HERE = pathlib.Path(__file__).resolve().parent

LABELS = {
    "fsdp": "ours",
    "single": "ours, single",
    "fsdp2": "FSDP2",
    "ddp": "DDP",
    "eager": "eager",
}
OURS = ("fsdp", "single")
RUNS = [("gpt2-124m", 8, 1024), ("gpt2-774m", 4, 1024)]  # model, rows, tokens of a row
DRY_RUNS = [("gpt2-tiny", 2, 16)]
WARMUP = 5  # number of first steps that are not timed: allocations, choice of kernels
PROFILED = 2  # number of last steps, which the profiler slows; as in train's --profile
LIMIT = 120  # [s] time limit of a run
# The relative difference that losses of two programs may have. The programs call the same kernels
# with the same numbers, but on a GPU a kernel may give other bits each time, and DDP adds gradients
# in buckets. With --dry, which runs on the CPU, losses must be equal.
LOSS_TOLERANCE, DRY_LOSS_TOLERANCE = 1e-2, 0

# [FLOP/s] Peak speed of GPUs for dense bf16 matrices, from NVIDIA's data sheets (H100 and H200
# SXM).
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12}
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")  # categories of trace events


def flops_of_token(model, seq):
    """Returns the floating-point operations of forward and backward for one token: 6 for each
    parameter that is in a matrix product, and for attention 12 x layers x width x tokens of the row
    (PaLM, arXiv 2204.02311, appendix B)."""
    options = MODELS[model]
    block = 4 * options.d_model**2 + 2 * options.d_model * options.d_ff
    multiplied = options.layers * block + options.vocabulary * options.d_model  # + the tied head
    return 6 * multiplied + 12 * options.layers * options.d_model * seq


def busy(events):
    """Returns the number of microseconds in which at least one of the `events` of a profile, such
    as kernels and copies, is running."""
    total, end = 0.0, float("-inf")
    for begin, length in sorted((event["ts"], event["dur"]) for event in events):
        total += max(0.0, begin + length - max(begin, end))
        end = max(end, begin + length)
    return total


def read_profile(trace, steps):
    """Returns, as means over the profiled steps: the number of CPU operators and of kernels in a
    step, and the seconds in which the device is busy."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    on_device = [event for event in events if event.get("cat") in ON_DEVICE]
    return {
        "operators": sum(event.get("cat") == "cpu_op" for event in events) / steps,
        "kernels": sum(event.get("cat") == "kernel" for event in on_device) / steps,
        "seconds_busy": busy(on_device) / steps / 1e6,
    }


def command(program, args, run, out):
    model, rows, seq = run
    steps = WARMUP + args.steps + PROFILED
    words = [
        "--mode",
        program,
        "--device",
        args.device,
        "--model",
        model,
        "--batch",
        rows,
        "--seq",
        seq,
        "--steps",
        steps,
        "--json",
        out,
        "--profile",
        f"{out}.profile",
    ]
    if program in OURS:
        words = [
            args.train,
            *words,
            "--world",
            1,
            "--recipe",
            "published",
            "--lr",
            LR,
            "--param-dtype",
            "bf16",
        ]
    else:
        words = [sys.executable, HERE / "gpu_peer.py", *words]
    return [str(word) for word in words]


def measured(program, args, run):
    """Runs one of the compared programs once. Returns a dict of its measurements: its speed, memory
    and losses, and the numbers of read_profile(). Raises bench.Failure if the run fails."""
    model, rows, seq = run
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "run.json")
        words = command(program, args, run, out)
        process = bench.launch(words)
        try:
            said = process.communicate(timeout=LIMIT)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = f"{process.communicate()[1]}\nhas not ended after {LIMIT} s"
        if process.returncode != 0:
            tail = "\n".join(said.strip().splitlines()[-5:])
            raise bench.Failure(f"{tail}\n  the command: {' '.join(words)}")
        found = bench.read_run(out.read_text().splitlines())
        profile = read_profile(json.loads(pathlib.Path(f"{out}.profile").read_text()), PROFILED)
    speed = statistics.median(found["tokens_per_s"][WARMUP:-PROFILED])
    peak = next((peak for name, peak in PEAKS.items() if name in args.device_name), None)
    allocator = found["final"].get("caching_allocator") or {}
    return {
        "tokens_per_s": speed,
        "mfu": speed * flops_of_token(model, seq) / peak if peak else None,
        "idle": 1 - profile["seconds_busy"] * speed / (rows * seq) if profile["kernels"] else None,
        "peak_allocated": allocator.get("peak_allocated", [None])[0],
        "peak_reserved": allocator.get("peak_reserved", [None])[0],
        **profile,
        "params": found["final"]["params"],
        "losses": found["losses"],
    }


def compared(results, tolerance=LOSS_TOLERANCE):
    """Returns `results`: program -> what was measured of it. Adds to each program `ratio`, our
    FSDP's speed divided by the program's speed, and `loss_difference`, the difference of its losses
    from those of our FSDP. Raises bench.Failure if a program trains another model than ours, or if
    its losses differ too much."""
    ours = results["fsdp"]
    for program, found in results.items():
        if found["params"] != ours["params"]:
            raise bench.Failure(
                f"{LABELS[program]} has {found['params']} parameters, ours has {ours['params']}"
            )
        found["ratio"] = ours["tokens_per_s"] / found["tokens_per_s"]
        found["loss_difference"] = bench.loss_difference(found["losses"], ours["losses"])
        if not found["loss_difference"] <= tolerance:
            raise bench.Failure(f"the losses of {LABELS[program]} differ from ours by "
                                f"{found['loss_difference']:.1e}, more than {tolerance:.0e}")
    return results


def shown(value, text):
    return "-" if value is None else text.format(value)


def show(run, results):
    model, rows, seq = run
    row = "{:13}{:>11}{:>9}{:>8}{:>10}{:>10}{:>9}{:>8}{:>11}".format
    print(f"\n{model}, {rows} x {seq} tokens a step, bf16")
    print(
        row(
            "", "tokens/s", "ours/it", "MFU", "peak GB", "reserved", "kernels", "idle", "loss diff."
        )
    )
    for program, found in results.items():
        print(
            row(
                LABELS[program],
                f"{found['tokens_per_s']:,.0f}",
                f"{found['ratio']:.3f}",
                shown(found["mfu"], "{:.1%}"),
                shown(found["peak_allocated"] and found["peak_allocated"] / 1e9, "{:.2f}"),
                shown(found["peak_reserved"] and found["peak_reserved"] / 1e9, "{:.2f}"),
                f"{found['kernels']:.0f}",
                shown(found["idle"], "{:.1%}"),
                f"{found['loss_difference']:.1e}",
            )
        )


def programs():
    """Returns the programs to run: our two, and those that need PyTorch if this Python has
    torch."""
    if importlib.util.find_spec("torch") is not None:
        return list(LABELS)
    print("PyTorch's programs are left out: this Python has no torch")
    return list(OURS)


def name_of_device(device):
    if device == "cpu":
        return "CPU"
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def measure(args, run, report):
    """Measures all programs with one model, and prints the table. Returns a line for each
    failure."""
    results, wrong = {}, []
    for program in args.programs:
        print(f"{run[0]}: {LABELS[program]} ...", file=sys.stderr, flush=True)
        one = {"model": run[0], "rows": run[1], "seq": run[2], "program": program}
        try:
            results[program] = measured(program, args, run)
            report({**one, **results[program]})
        except bench.Failure as failure:
            report({**one, "failure": str(failure)})
            wrong.append(f"{run[0]}, {LABELS[program]}: {failure}")
    try:
        if "fsdp" in results:
            show(run, compared(results, DRY_LOSS_TOLERANCE if args.dry else LOSS_TOLERANCE))
    except bench.Failure as failure:
        wrong.append(f"{run[0]}: {failure}")
    return wrong


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--train", required=True, metavar="PROGRAM", help="our train program")
    parser.add_argument("--out", required=True, metavar="FILE", help="a line of JSON for each run")
    parser.add_argument(
        "--steps", type=int, default=20,
        help=f"timed steps of each run, after {WARMUP} untimed ones"
    )
    parser.add_argument("--dry", action="store_true", help="a tiny model, on the CPU")
    return parser.parse_args()


def main():
    args = parse()
    args.device = "cpu" if args.dry else "cuda"
    args.device_name = name_of_device(args.device)
    args.programs = programs()
    carried = {"device": args.device_name, "commit": bench.git("rev-parse", "HEAD")}
    print(f"{args.device_name}, commit {carried['commit'][:12]}")
    with open(args.out, "a") as file:
        def report(line):
            print(json.dumps({**line, **carried}), file=file, flush=True)

        wrong = [
            line for run in (DRY_RUNS if args.dry else RUNS) for line in measure(args, run, report)
        ]
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
