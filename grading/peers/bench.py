"""Times our FSDP and DDP beside PyTorch's FSDP2 and DDP: one model, data, threads, optimizer, machine.

Programs take turns, a short run each, `--rounds` times; a ratio is taken within one round, so that
what else the machine does weighs on both sides. The losses of every run must agree."""

import argparse
import datetime
import filecmp
import importlib.util
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile

from sizes import MODELS

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

OURS = "fsdp"
# W processes that train the model at once, each alone: nothing is sharded, and nobody waits for
# anybody. What is computed in a step can't be had faster on this machine.
ALONE = "alone"
OUR_DDP = "our-ddp"
PROGRAMS = (OURS, "fsdp2", OUR_DDP, "ddp", ALONE)
LABELS = {OURS: "ours", "fsdp2": "FSDP2", OUR_DDP: "our DDP", "ddp": "DDP", ALONE: "alone"}
MODES = {OURS: "fsdp", OUR_DDP: "ddp", ALONE: "single"}  # of our train program

# The losses of two runs may differ by this much, relative. The programs run the same kernels on the
# same weights and rows, but from three ranks on they sum gradients in another order: a few units in
# the last place of fp32 (6e-8). What would be wrong (other rows, another learning rate, a missing
# step) is off by 1e-5 and more.
LOSS_TOLERANCE = 1e-6
WARMUP = 3  # steps that are not timed: allocations, DDP's buckets
LR = 1e-4   # the published recipe's for these models


class Failure(Exception):
    pass


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def model_name(text):
    if text not in MODELS:
        raise argparse.ArgumentTypeError(f"'{text}' is unknown; known are {', '.join(MODELS)}")
    return text


def list_of(read):
    return lambda text: [read(part) for part in text.split(",")]


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")


def parse(argv):
    parser = Parser(
        prog="fsdp bench --peers", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    build = os.path.join(ROOT, "build", "default")
    parser.add_argument("--world", type=list_of(positive), default="2,4", metavar="LIST")
    parser.add_argument("--model", type=list_of(model_name), default="gpt2-36m,gpt2-124m",
                        metavar="LIST")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--steps", type=positive, default=8,
                        help=f"timed in each run, after {WARMUP} that are not")
    parser.add_argument("--rows", type=positive, default=1, help="per rank")
    parser.add_argument("--seq", type=positive, default=16, help="tokens a row")
    parser.add_argument("--torch-allocator", action="store_true",
                        help="peers with torch's own allocator: slower, bytes not counted")
    parser.add_argument("--json", metavar="FILE", help="every run and every result, one a line")
    parser.add_argument("--train", metavar="PROGRAM", help="our train program",
                        default=os.path.join(build, "bin", "reference_train"))
    parser.add_argument("--counter", metavar="LIBRARY", help="counts the peers' bytes",
                        default=os.path.join(build, "lib", "libpeers_counter.so"))
    return parser.parse_args(argv)


def command(program, args, model, world, out):
    if program == ALONE:
        world = 1
    common = ["--world", world, "--model", model, "--batch", args.rows * world, "--seq", args.seq]
    common += ["--steps", WARMUP + args.steps, "--lr", LR, "--json", out]
    if program in MODES:
        start = [args.train, "--mode", MODES[program], "--recipe", "published", "--threads", 1]
        start += ["--log", log_beside(out)]
    else:
        start = [sys.executable, os.path.join(HERE, "peer.py"), "--mode", program]
        if not args.torch_allocator:
            start += ["--counter", args.counter]
    return [str(word) for word in start + common]


def environment():
    """One thread a rank in every library; gloo over the loopback, whatever the host's name is."""
    return {
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "FSDP_ROOT": ROOT, **os.environ,
    }


def read_run(lines):
    """The lines that train or a peer wrote -> losses, tokens per second, the last line."""
    records = [json.loads(line) for line in lines]
    if not records or not records[-1].get("final"):
        raise Failure("its JSON has no final line")
    steps, final = records[:-1], records[-1]
    if [record["step"] for record in steps] != list(range(len(steps))):
        raise Failure("its JSON does not have one line for every step")
    return {
        # JSON has no NaN: train writes null.
        "losses": [math.nan if record["loss"] is None else record["loss"] for record in steps],
        "tokens_per_s": [record["tokens_per_s"] for record in steps],
        "final": final,
    }


def run(program, args, model, world):
    count = world if program == ALONE else 1
    with tempfile.TemporaryDirectory() as folder:
        outs = [os.path.join(folder, str(number)) for number in range(count)]
        running = [launch(command(program, args, model, world, out)) for out in outs]
        for process in running:  # all of them, before one is found to have failed
            process.errors = process.communicate()[1]
        for process in running:
            if process.returncode != 0:
                tail = "\n".join(process.errors.strip().splitlines()[-5:])
                raise Failure(f"{LABELS[program]} failed on {model}, W = {world}: {tail}\n"
                              f"  the command: {' '.join(process.args)}")
        try:
            return together([read_files(out) for out in outs])
        except Failure as error:
            raise Failure(f"{LABELS[program]} on {model}, W = {world}: {error}") from None


def launch(words):
    return subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def log_beside(out):
    return f"{out}.log"


def read_files(out):
    with open(out) as file:
        one = read_run(file.readlines())
    if os.path.exists(log_beside(out)):
        with open(log_beside(out)) as file:
            one["waiting"] = [waiting(json.loads(line)) for line in file]
    return one


def waiting(step):
    """A line of our --log -> the share of the step in which rank 0 waited, by operation."""
    return {operation: counted["seconds_waiting"] / step["seconds"]["step"]
            for operation, counted in step["operations"].items()}


def together(runs):
    """Runs that took place at once: the first, with the tokens per second of all."""
    speeds = zip(*(one["tokens_per_s"] for one in runs))
    return {**runs[0], "tokens_per_s": [sum(step) for step in speeds]}


def loss_difference(losses, others):
    """The largest over steps, relative."""
    if len(losses) != len(others):
        raise Failure(f"{len(losses)} losses beside {len(others)}")
    return worst(abs(a - b) / abs(b) for a, b in zip(losses, others))


def worst(differences):
    """The largest; what is not a number, which max() may pass over, is larger than all."""
    return max(differences, key=lambda value: math.inf if math.isnan(value) else value)


def losses_agree(row):
    return row["loss_difference"] <= LOSS_TOLERANCE


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarize(runs):
    """runs: program -> its run in every round. Per program the speed (each run's median step, over
    rounds), ratios ours : peer within a round (of DDP our DDP : DDP), peak bytes and the loss
    difference to ours."""
    speeds = {
        program: [statistics.median(one["tokens_per_s"][WARMUP:]) for one in rounds]
        for program, rounds in runs.items()
    }
    expected = runs[OURS][0]
    summary = {}
    for program, rounds in runs.items():
        finals = [one["final"] for one in rounds]
        if any(final["params"] != expected["final"]["params"] for final in finals):
            raise Failure(f"{LABELS[program]} has {finals[0]['params']} parameters, ours has "
                          f"{expected['final']['params']}")
        shards = program != ALONE
        ours = speeds[OUR_DDP if program == "ddp" and OUR_DDP in runs else OURS]
        peaks = [max(final["peak_bytes"]) for final in finals if final.get("peak_bytes") and shards]
        summary[program] = {
            "tokens_per_s": spread(speeds[program]),
            "ratio": spread([own / other for own, other in zip(ours, speeds[program])]),
            "peak_bytes": spread(peaks) if peaks else None,
            "comm_bytes": finals[0].get("comm_bytes") if shards else None,
            # Who is alone trains on the rows of rank 0.
            "loss_difference": worst(
                loss_difference(one["losses"], expected["losses"]) for one in rounds
            ) if shards else 0.0,
        }
    return summary


def waiting_share(rounds):
    """The median over all timed steps, by operation."""
    steps = [step for one in rounds for step in one["waiting"][WARMUP:]]
    return {operation: statistics.median(step[operation] for step in steps)
            for operation in steps[0]}


def torch_folder():
    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise Failure("this Python has no torch; run ./fsdp setup --peers")
    return spec.submodule_search_locations[0]


def check_torch(train):
    """The version; fails unless the train program's LibTorch is the very one the peers import."""
    linked = subprocess.run(["ldd", train], capture_output=True, text=True).stdout
    ours = re.search(r"libtorch_cpu\.so => (\S+)", linked)
    theirs = os.path.join(torch_folder(), "lib", "libtorch_cpu.so")
    if not ours:
        raise Failure(f"{train} is not linked to libtorch_cpu.so; build it with ./fsdp build")
    if not filecmp.cmp(ours[1], theirs, shallow=False):
        raise Failure(f"the peers' LibTorch is another: {theirs} differs from {ours[1]}")
    with open(os.path.join(torch_folder(), "version.py")) as file:
        return re.search(r"__version__ = '([^']+)'", file.read())[1]


def git(*words):
    done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def context(args, torch_version):
    """What every line of JSON carries."""
    with open("/proc/cpuinfo") as file:
        cpu = re.search(r"model name\s*: (.*)", file.read())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": cpu[1] if cpu else platform.machine(), "cores": os.cpu_count(),
            "memory_bytes": memory, "kernel": platform.release(),
        },
        "versions": {"torch": torch_version, "python": platform.python_version()},
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain")),
        "configuration": {
            "rows_per_rank": args.rows, "seq": args.seq, "warmup": WARMUP, "steps": args.steps,
            "rounds": args.rounds, "threads": 1, "lr": LR, "optimizer": "adamw, fused",
            "peers_allocator": "torch" if args.torch_allocator else "counting",
        },
    }


def show(model, world, args, summary):
    print(f"\n{model}, W = {world}, {args.rows} x {args.seq} tokens a rank, "
          f"{args.rounds} rounds of {args.steps} steps")
    print(f"{'':8}{'tokens/s':>10}{'min .. max':>20}{'ours/it':>9}{'min .. max':>17}"
          f"{'peak bytes/rank':>17}{'loss diff.':>11}")
    for program, row in summary.items():
        speed, ratio, peak = row["tokens_per_s"], row["ratio"], row["peak_bytes"]
        cells = [f"{LABELS[program]:8}", f"{speed['median']:10.1f}", f"{span(speed, 1):>20}"]
        if program == OURS:
            cells.append(f"{'':26}")
        else:
            cells += [f"{ratio['median']:9.2f}", f"{span(ratio, 2):>17}"]
        # Between rounds it may vary: a gloo thread lets go of a buffer sooner or later. The peer
        # has the benefit of the doubt.
        bytes_alive = peak and peak["max" if program in MODES else "min"]
        cells.append(f"{bytes_alive:17,}" if peak else f"{'':17}")
        cells.append(f"{row['loss_difference']:11.1e}" if program != ALONE else "")
        print("".join(cells).rstrip())
    for program, row in summary.items():
        if program == ALONE:
            continue
        moved = ", ".join(f"{key} {size:,}" for key, size in (row["comm_bytes"] or {}).items())
        print(f"{LABELS[program]:8}bytes moved a step and rank: {moved or 'not known'}")


    shares = ", ".join(f"{name} {share:.1%}" for name, share in summary[OURS]["waiting"].items())
    print(f"ours    share of a step spent waiting on rank 0: {shares}")


def span(values, digits):
    return f"{values['min']:.{digits}f} .. {values['max']:.{digits}f}"


def measure(args, model, world, report):
    runs = {program: [] for program in PROGRAMS}
    for number in range(args.rounds):
        for program in PROGRAMS:
            if sys.stderr.isatty():
                print(f"\r{model} W = {world} round {number + 1}/{args.rounds} {LABELS[program]:8}",
                      end="", file=sys.stderr)
            one = run(program, args, model, world)
            runs[program].append(one)
            report({"run": program, "model": model, "world": world, "round": number, **one})
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    summary = summarize(runs)
    summary[OURS]["waiting"] = waiting_share(runs[OURS])
    show(model, world, args, summary)
    report({"summary": summary, "model": model, "world": world})
    return [
        f"{model}, W = {world}: the losses of {LABELS[program]} differ from ours by "
        f"{row['loss_difference']:.1e}, more than {LOSS_TOLERANCE:.0e}"
        for program, row in summary.items() if not losses_agree(row)
    ]


def main():
    args = parse(sys.argv[1:])
    try:
        for path in (args.train, args.counter):
            if not os.path.exists(path):
                raise Failure(f"{path} is not there; ./fsdp build makes it")
        carried = context(args, check_torch(args.train))
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
    print(f"\nlosses agree to {LOSS_TOLERANCE:.0e}, relative, at every step" if not wrong else
          "\n" + "\n".join(wrong))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
