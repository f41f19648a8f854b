"""Trains GPT-2 on W CPU ranks with PyTorch's FSDP2 or DDP.

Writes JSON lines in the form of ./fsdp train.

    python peer.py --mode fsdp2|ddp --world W --model NAME --batch B --seq T --steps N
                   [--recipe published|modular] [--eval-every K] [--counter LIBRARY] [--json FILE]
"""

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # NumPy is not needed

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import counting
import gpt2
from recipes import RECIPES, SEED, adamw
from sizes import MODELS

TIMEOUT = datetime.timedelta(seconds=300)


def place(parameter, whole):
    if isinstance(parameter, DTensor):
        # No rank sends anything, because every rank has drawn the same whole tensor and cuts its
        # own part out of it.
        part = distribute_tensor(
            whole, parameter.device_mesh, parameter.placements, src_data_rank=None
        )
        parameter.to_local().copy_(part.to_local())
    else:
        parameter.copy_(whole)


def build_fsdp2(options, world):
    mesh = init_device_mesh("cpu", (world,))
    model = gpt2.build_on_meta(options)
    for block in model.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    gpt2.draw_weights(model, options, SEED, place)
    return model


def replicated(model):
    """Returns the model in PyTorch's DDP. init_sync is off, because all ranks have drawn the same
    values."""
    return DistributedDataParallel(
        model,
        init_sync=False,
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
        static_graph=True,
    )


def build_ddp(options, world):
    model = gpt2.build_on_meta(options)
    model.to_empty(device="cpu")
    gpt2.draw_weights(model, options, SEED, place)
    return replicated(model)


BUILD = {"fsdp2": build_fsdp2, "ddp": build_ddp}


def rows_of(rank, world, batch):
    inputs, targets = batch
    return inputs.chunk(world)[rank], targets.chunk(world)[rank]


@torch.no_grad()
def accuracy(model, recipe):
    """Returns the accuracy on the recipe's held-out data. All ranks must call it together, because
    FSDP2 gathers the model's parameters."""
    inputs, targets = recipe.held_out
    right = model(inputs)[:, -1].argmax(1) == targets[:, -1]
    return right.float().mean().item()


def train(rank, args):
    options = MODELS[args.model]
    model = BUILD[args.mode](options, args.world)
    recipe = RECIPES[args.recipe](options)
    optimizer = adamw(model.parameters(), recipe)
    params = sum(parameter.numel() for parameter in model.parameters())
    losses, seconds, moved, held_out = [], [], {}, {}
    for step in range(args.steps):
        inputs, targets = rows_of(rank, args.world, recipe.batch(step, args.batch, args.seq))
        counted = step == 1
        scope = counting.counted_collectives(args.world) if counted else contextlib.nullcontext()
        with scope as counts:
            start = time.perf_counter()
            loss = gpt2.loss_of(model, inputs, targets)
            loss.backward()
            if recipe.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
            seconds.append(time.perf_counter() - start)
        moved = counts or moved
        if args.eval_every and (step + 1) % args.eval_every == 0:
            held_out[step] = {"accuracy": accuracy(model, recipe)}
    if args.mode == "ddp":
        moved = counting.ddp_bytes(model, args.world)
    return {
        "losses": losses,
        "seconds": seconds,
        "held_out": held_out,
        "params": params,
        "comm_bytes": dict(moved),
    }


def count_storage(library):
    """Replaces torch's allocator by the counting allocator of our train program, which is in the
    shared library. Must be called before this process has a tensor. Returns the function that
    returns the peak of bytes. torch.profiler is not used, because it misses blocks that a gloo
    thread frees after its operation, so its sum drifts by the bytes of whole units."""
    counter = ctypes.CDLL(library)
    counter.counter_peak.restype = ctypes.c_int64
    counter.counter_install()
    return counter.counter_peak


def run_rank(rank, args, folder):
    peak = count_storage(args.counter) if args.counter else lambda: None
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), args.world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=args.world, timeout=TIMEOUT)
    result = train(rank, args)
    dist.barrier()  # no rank ends while another one still needs its connection
    result.update(peak_bytes=peak(), cpu_seconds=sum(os.times()[:2]))
    pathlib.Path(folder, f"rank{rank}").write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)


def run_ranks(args, folder):
    """Runs the ranks and returns their results. The first rank that fails ends the others."""
    # The ranks are forked, so that torch is imported only once. This is safe, because no thread of
    # torch runs yet.
    torch.multiprocessing.start_processes(run_rank, (args, folder), args.world, start_method="fork")
    return [
        json.loads(pathlib.Path(folder, f"rank{rank}").read_text()) for rank in range(args.world)
    ]


def lines(args, results):
    """Yields JSON lines, one for each step and a last one about the run, with the field names of
    ./fsdp train --json."""
    for step, losses in enumerate(zip(*(result["losses"] for result in results))):
        seconds = results[0]["seconds"][step]
        line = {
            "step": step,
            "loss": sum(losses) / args.world,
            "tokens_per_s": args.batch * args.seq / seconds,
        }
        if str(step) in results[0]["held_out"]:
            line["held_out"] = results[0]["held_out"][str(step)]
        yield line
    final = {"final": True, **vars(args), "threads": 1, "backend": "gloo"}
    for key in ("params", "comm_bytes"):
        final[key] = results[0][key]
    for key in ("peak_bytes", "cpu_seconds"):
        final[key] = [result[key] for result in results if result[key] is not None]
    yield final


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--mode", choices=sorted(BUILD), required=True)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    for name, text in (
        ("world", "ranks"),
        ("batch", "global rows a step"),
        ("seq", "tokens a row"),
        ("steps", ""),
    ):
        parser.add_argument(f"--{name}", type=int, required=True, help=text)
    parser.add_argument("--recipe", choices=RECIPES, default="published", help="data and settings")
    parser.add_argument(
        "--eval-every", type=int, metavar="K", help="steps between evaluations of the held-out data"
    )
    parser.add_argument("--counter", help="libpeers_counter.so (default: torch's own allocator)")
    parser.add_argument("--json", help="output file (default: standard output)")
    args = parser.parse_args()
    if args.batch % args.world:
        parser.error(f"--batch {args.batch} cannot be cut into {args.world} equal parts")
    if args.eval_every and args.recipe == "published":
        parser.error("--eval-every: --recipe published holds nothing out")
    return args


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        results = run_ranks(args, folder)
    with open(args.json, "w") if args.json else contextlib.nullcontext(sys.stdout) as out:
        for line in lines(args, results):
            print(json.dumps(line), file=out)


if __name__ == "__main__":
    main()
