"""Compares the speed of our FSDP and DDP with PyTorch's FSDP2 and DDP.

The model, data, threads, optimizer and machine are the same for all programs. The programs take
turns, `--rounds` times, each with a short run. A ratio of speeds is computed within one round, so
that other load of the machine slows both programs. The losses of all runs must agree."""

import argparse
import datetime
import filecmp
import importlib.util
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

from sizes import LR, MODELS, MODULAR_SEQ

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRAIN = ROOT / "build/default/bin/reference_train"
COUNTER = ROOT / "build/default/lib/libpeers_counter.so"  # library that counts the peers' bytes

# Program -> its name in the table. OURS is our FSDP with the units of the FSDP2 program, one for
# each block; AUTO is our FSDP with the units of --wrap auto. ALONE is W independent processes that
# train the model at the same time and send nothing: an upper bound of the speed on this machine.
OURS, AUTO, OUR_DDP, ALONE = "fsdp", "fsdp-auto", "our-ddp", "alone"
LABELS = {
    OURS: "ours",
    AUTO: "auto",
    "fsdp2": "FSDP2",
    OUR_DDP: "our DDP",
    "ddp": "DDP",
    ALONE: "alone",
}
# Program -> its value of --mode, if the program is our ./fsdp train.
MODES = {OURS: "fsdp", AUTO: "fsdp", OUR_DDP: "ddp", ALONE: "single"}
WRAPS = {OURS: "block", AUTO: "auto"}

# The relative difference that the losses of two runs may have. The programs run the same kernels on
# the same weights and rows, but on three or more ranks they sum gradients in another order, which
# changes a few units in the last place of fp32 (6e-8). Mistakes (other rows, another learning rate,
# a missing step) change losses by 1e-5 or more.
LOSS_TOLERANCE = 1e-6
COMPARED = (
    # Only the losses of this many first steps are compared: later, if a model learns suddenly,
    # rounding errors grow to 1 %.
    100
)
WARMUP = 3  # number of first steps that are not timed: they allocate, and DDP makes its buckets
EVAL_EVERY = 20  # steps between evaluations of --recipe modular


class Failure(Exception):
    pass


def list_of(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(prog="fsdp bench --peers", description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=list_of(int), default="2,4", metavar="LIST")
    parser.add_argument("--model", type=list_of(str), default="gpt2-36m,gpt2-124m", metavar="LIST")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--steps", type=int, default=8, help=f"timed steps of each run, after {WARMUP} untimed ones"
    )
    parser.add_argument("--recipe", choices=["published", "modular"], default="published",
                        help="data and settings, as in train")
    parser.add_argument("--rows", type=int, default=1, help="rows of each rank")
    parser.add_argument("--seq", type=int, default=16, help="tokens of a row")
    parser.add_argument("--torch-allocator", action="store_true",
                        help="peers with torch's own allocator: slower, bytes not counted")
    parser.add_argument("--json", metavar="FILE",
                        help="write every run and every result, one per line")
    args = parser.parse_args()
    if args.recipe == "modular":
        args.seq = MODULAR_SEQ
    for name in args.model:
        if name not in MODELS:
            parser.error(f"--model '{name}' is unknown; known are {', '.join(MODELS)}")
    for name in ("world", "rounds", "steps", "rows", "seq"):
        if min([getattr(args, name)] if name != "world" else args.world) < 1:
            parser.error(f"--{name}: takes numbers above 0")
    return args


def command(program, args, model, world, out):
    if program == ALONE:
        world = 1
    if program in MODES:
        start = [TRAIN, "--mode", MODES[program], "--threads", 1, "--log", f"{out}.log"]
        start += ["--wrap", WRAPS[program]] if program in WRAPS else []
    else:
        start = [sys.executable, HERE / "peer.py", "--mode", program]
        start += [] if args.torch_allocator else ["--counter", COUNTER]
    start += [
        "--world",
        world,
        "--model",
        model,
        "--recipe",
        args.recipe,
        "--batch",
        args.rows * world,
    ]
    start += ["--steps", WARMUP + args.steps, "--json", out]
    if args.recipe == "modular":
        start += ["--eval-every", EVAL_EVERY]
    elif program in MODES:
        start += ["--lr", LR]
    if (
        args.recipe == "published" or program not in MODES
    ):  # for the recipe modular, train itself chooses the tokens of a row
        start += ["--seq", args.seq]
    return [str(word) for word in start]


def launch(words):
    """Starts a program. Every library in it uses one thread for each rank. gloo uses the loopback
    interface, so the host's name does not matter."""
    environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                   "FSDP_ROOT": str(ROOT), **os.environ}
    return subprocess.Popen(
        words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def read_run(lines):
    """Returns the losses, the tokens per second, the accuracies and the last line of a run, from
    the JSON lines that ./fsdp train or a peer wrote."""
    *steps, final = [json.loads(line) for line in lines] or [{}]
    if not final.get("final"):
        raise Failure("its JSON has no final line")
    if [record["step"] for record in steps] != list(range(len(steps))):
        raise Failure("its JSON does not have one line for every step")
    return {
        # JSON has no NaN, so ./fsdp train writes a loss that is NaN as null.
        "losses": [math.nan if record["loss"] is None else record["loss"] for record in steps],
        "tokens_per_s": [record["tokens_per_s"] for record in steps],
        "accuracy": {
            record["step"]: record["held_out"]["accuracy"]
            for record in steps
            if "held_out" in record
        },
        "final": final,
    }


def together(runs):
    """Returns the first of `runs`, with the sum of the tokens per second of all `runs` in its
    place. The runs ran at the same time."""
    speeds = zip(*(one["tokens_per_s"] for one in runs))
    return {**runs[0], "tokens_per_s": [sum(step) for step in speeds]}


def waiting(step):
    """Returns a dict, operation -> the share of a step in which rank 0 waited for this operation.
    `step`: a line of our --log."""
    return {operation: counted["seconds_waiting"] / step["seconds"]["step"]
            for operation, counted in step["operations"].items()}


def run(program, args, model, world):
    with tempfile.TemporaryDirectory() as folder:
        outs = [
            pathlib.Path(folder, str(number)) for number in range(world if program == ALONE else 1)
        ]
        running = [launch(command(program, args, model, world, out)) for out in outs]
        said = [
            process.communicate()[1] for process in running
        ]  # an error of one process is raised when all have ended
        for process, errors in zip(running, said):
            if process.returncode != 0:
                tail = "\n".join(errors.strip().splitlines()[-5:])
                raise Failure(f"{LABELS[program]} failed on {model}, W = {world}: {tail}\n"
                              f"  the command: {' '.join(process.args)}")
        try:
            found = together([read_run(out.read_text().splitlines()) for out in outs])
        except Failure as error:
            raise Failure(f"{LABELS[program]} on {model}, W = {world}: {error}") from None
        if program == OURS:
            log = pathlib.Path(f"{outs[0]}.log").read_text()
            found["waiting"] = [waiting(json.loads(line)) for line in log.splitlines()]
        return found


def loss_difference(losses, others):
    """Returns the largest relative difference between two lists of losses over the first COMPARED
    steps; infinite if a loss is NaN."""
    if len(losses) != len(others):
        raise Failure(f"{len(losses)} losses beside {len(others)}")
    differences = [abs(a - b) / abs(b) for a, b in zip(losses[:COMPARED], others)]
    return math.inf if any(map(math.isnan, differences)) else max(differences)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def learned(run):
    """Returns a text about a run that evaluated held-out data: after how many steps all of it was
    right, the last loss, and the peak of bytes."""
    solved = [step + 1 for step, accuracy in run["accuracy"].items() if accuracy == 1]
    return (
        f"all right after {solved[0] if solved else 'no'} steps with loss {run['losses'][-1]:.4f} "
        f"and peak {max(run['final']['peak_bytes'] or [0]) / 1e6:.1f} MB"
    )


def summarize(runs):
    """Returns a dict, program -> summary of its runs:
    - the speed: the median, the lowest and the highest, over the rounds, of the median tokens per
      second of a run's steps;
    - the ratio of our FSDP's speed to the program's speed in the same round; for PyTorch's DDP, the
      ratio of our DDP's speed to its speed;
    - the peak of bytes, the bytes moved, and the difference of the program's losses from those of
      our FSDP.
    `runs`: program -> its run in every round."""
    speeds = {program: [statistics.median(one["tokens_per_s"][WARMUP:]) for one in rounds]
              for program, rounds in runs.items()}
    expected = runs[OURS][0]
    summary = {}
    for program, rounds in runs.items():
        finals = [one["final"] for one in rounds]
        if any(final["params"] != expected["final"]["params"] for final in finals):
            raise Failure(f"{LABELS[program]} has {finals[0]['params']} parameters, ours has "
                          f"{expected['final']['params']}")
        ours = speeds[OUR_DDP if program == "ddp" and OUR_DDP in runs else OURS]
        summary[program] = {
            "tokens_per_s": spread(speeds[program]),
            "ratio": spread([own / other for own, other in zip(ours, speeds[program])]),
            "peak_bytes": None, "comm_bytes": None, "loss_difference": 0.0,
        }
        if program == ALONE:  # independent processes: memory, traffic and losses are not compared
            continue
        peaks = [max(final["peak_bytes"]) for final in finals if final.get("peak_bytes")]
        differences = [loss_difference(one["losses"], expected["losses"]) for one in rounds]
        # The peak of a program with PyTorch varies between rounds, because a gloo thread frees a
        # buffer earlier or later. Of such a program the lowest peak of all rounds counts, of ours
        # the highest.
        summary[program] |= {
            "peak_bytes": (max if program in MODES else min)(peaks) if peaks else None,
            "comm_bytes": finals[0].get("comm_bytes"),
            "loss_difference": max(differences),
        }
    return summary


def waiting_share(rounds):
    """Returns a dict, operation -> the share of a step in which rank 0 waited for this operation:
    the median over the timed steps of all rounds."""
    steps = [step for one in rounds for step in one["waiting"][WARMUP:]]
    return {
        operation: statistics.median(step[operation] for step in steps) for operation in steps[0]
    }


def check_torch():
    """Returns torch's version. Raises Failure unless our train program is linked to the same
    LibTorch that the peers import."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise Failure("this Python has no torch; run ./fsdp setup --peers")
    folder = pathlib.Path(spec.submodule_search_locations[0])
    linked = subprocess.run(["ldd", TRAIN], capture_output=True, text=True).stdout
    ours = re.search(r"libtorch_cpu\.so => (\S+)", linked)
    theirs = folder / "lib" / "libtorch_cpu.so"
    if not ours:
        raise Failure(f"{TRAIN} is not linked to libtorch_cpu.so; build it with ./fsdp build")
    if not filecmp.cmp(ours[1], theirs, shallow=False):
        raise Failure(f"the peers' LibTorch is another: {theirs} differs from {ours[1]}")
    return re.search(r"__version__ = '([^']+)'", (folder / "version.py").read_text())[1]


def git(*words):
    return subprocess.run(
        ["git", "-C", ROOT, *words], capture_output=True, text=True
    ).stdout.strip()


def context(args):
    """Returns the fields that are added to every line of --json: date, machine, versions, commit
    and settings."""
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu[1] if cpu else platform.machine(),
            "cores": os.cpu_count(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(),
        },
        "versions": {"torch": check_torch(), "python": platform.python_version()},
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain")),
        "configuration": {
            **vars(args),
            "warmup": WARMUP,
            "threads": 1,
            "optimizer": "adamw, fused",
        },
    }


def span(values, digits):
    return f"{values['min']:.{digits}f} .. {values['max']:.{digits}f}"


def show(model, world, args, summary):
    print(f"\n{model}, W = {world}, {args.rows} x {args.seq} tokens a rank, "
          f"{args.rounds} rounds of {args.steps} steps")
    row = "{:8}{:>10}{:>20}{:>9}{:>17}{:>17}{:>11}".format
    print(
        row("", "tokens/s", "min .. max", "ours/it", "min .. max", "peak bytes/rank", "loss diff.")
    )
    for program, found in summary.items():
        speed, ratio, peak = found["tokens_per_s"], found["ratio"], found["peak_bytes"]
        ratios = ("", "") if program == OURS else (f"{ratio['median']:.2f}", span(ratio, 2))
        difference = "" if program == ALONE else f"{found['loss_difference']:.1e}"
        print(
            row(
                LABELS[program],
                f"{speed['median']:.1f}",
                span(speed, 1),
                *ratios,
                f"{peak:,}" if peak else "",
                difference,
            ).rstrip()
        )
    for program, found in summary.items():
        if program != ALONE:
            moved = ", ".join(
                f"{key} {size:,}" for key, size in (found["comm_bytes"] or {}).items()
            )
            print(f"{LABELS[program]:8}bytes moved a step and rank: {moved or 'not known'}")
    shares = ", ".join(f"{name} {share:.1%}" for name, share in summary[OURS]["waiting"].items())
    print(f"ours    share of a step spent waiting on rank 0: {shares}")


def measure(args, model, world, report):
    """Measures all programs with one model on `world` ranks, and prints the table. Returns a line
    for each program whose losses differ too much from ours."""
    runs = {program: [] for program in LABELS}
    for number in range(args.rounds):
        for program in LABELS:
            if sys.stderr.isatty():
                print(
                    f"\r\033[K{model} W = {world} round {number + 1}/{args.rounds} "
                    f"{LABELS[program]}\r",
                    end="",
                    file=sys.stderr,
                )
            one = run(program, args, model, world)
            runs[program].append(one)
            report({"run": program, "model": model, "world": world, "round": number, **one})
    summary = summarize(runs)
    summary[OURS]["waiting"] = waiting_share(runs[OURS])
    show(model, world, args, summary)
    for program, rounds in runs.items():
        if rounds[0]["accuracy"]:
            print(f"{LABELS[program]:8}{learned(rounds[0])}")
    report({"summary": summary, "model": model, "world": world})
    return [f"{model}, W = {world}: the losses of {LABELS[program]} differ from ours by "
            f"{found['loss_difference']:.1e}, more than {LOSS_TOLERANCE:.0e}"
            for program, found in summary.items() if found["loss_difference"] > LOSS_TOLERANCE]


def main():
    args = parse()
    try:
        carried = context(args)
        print(f"torch {carried['versions']['torch']}, {carried['machine']['cores']} x "
              f"{carried['machine']['cpu']}, 1 thread a rank")
        with open(args.json or os.devnull, "w") as file:
            def report(line):
                print(json.dumps({**line, **carried}), file=file, flush=True)

            wrong = [line for model in args.model for world in args.world
                     for line in measure(args, model, world, report)]
    except Failure as error:
        sys.exit(f"fsdp bench --peers: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(
        "\n"
        + (
            "\n".join(wrong)
            or f"losses agree to {LOSS_TOLERANCE:.0e}, relative, at every step"
            + (f" of the first {COMPARED}" if args.steps > COMPARED else "")
        )
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
