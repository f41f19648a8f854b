"""Trains GPT-2 on one GPU with PyTorch's FSDP2 or DDP over NCCL, or eagerly in one process.

Writes JSON lines in the form of ./fsdp train. Forward and backward compute in bf16; the parameters
that the optimizer updates, and its state, are fp32.

    python gpu_peer.py --mode fsdp2|ddp|eager --device cuda|cpu --model NAME
                       --batch B --seq T --steps N
                       --json FILE --profile FILE
"""

import argparse
import json
import pathlib
import tempfile
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # NumPy is not needed

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import gpt2
from peer import place, replicated
from one_gpu import PROFILED
from recipes import RECIPES, SEED, adamw
from sizes import MODELS


def materialize(model, options, device):
    model.to_empty(device=device)
    gpt2.draw_weights(
        model, options, SEED, lambda parameter, whole: place(parameter, whole.to(device))
    )


class Fsdp2:
    """PyTorch's FSDP2. It gathers parameters in bf16 and reduces gradients in fp32, as our FSDP
    does."""

    def __init__(self, options, device, recipe):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        mesh = init_device_mesh(device, (1,))
        self.model = gpt2.build_on_meta(options)
        for block in self.model.h:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)
        materialize(self.model, options, device)
        self.optimizer = adamw(self.model.parameters(), recipe)

    def step(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Eager:
    """A model in bf16 without FSDP, and copies of its parameters in fp32 that the optimizer
    updates."""

    def __init__(self, options, device, recipe):
        model = gpt2.build_on_meta(options)
        materialize(model, options, device)
        self.masters = [parameter.detach().clone() for parameter in model.parameters()]
        self.model = self.wrapped(model.to(torch.bfloat16))
        self.rounded = [parameter.detach() for parameter in model.parameters()]
        self.own = list(model.parameters())
        self.optimizer = adamw(self.masters, recipe)

    def wrapped(self, model):
        return model

    def step(self):
        for master, parameter in zip(self.masters, self.own):
            master.grad = torch.empty_like(master)
        torch._foreach_copy_(
            [master.grad for master in self.masters], [parameter.grad for parameter in self.own]
        )
        for parameter in self.own:
            parameter.grad = None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch._foreach_copy_(self.rounded, self.masters)


class Ddp(Eager):
    def wrapped(self, model):
        return replicated(model)


PROGRAMS = {"fsdp2": Fsdp2, "ddp": Ddp, "eager": Eager}


def profiler(device):
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(activities=kinds, acc_events=True)


def train(args, report):
    options = MODELS[args.model]
    recipe = RECIPES["published"](options)
    program = PROGRAMS[args.mode](options, args.device, recipe)
    profile = profiler(args.device)
    for step in range(args.steps):
        if step == max(0, args.steps - PROFILED):
            profile.start()
        start = time.perf_counter()
        inputs, targets = (
            part.to(args.device) for part in recipe.batch(step, args.batch, args.seq)
        )
        loss = gpt2.loss_of(program.model, inputs, targets)
        loss.backward()
        program.step()
        value = loss.item()
        report(
            {
                "step": step,
                "loss": value,
                "tokens_per_s": args.batch * args.seq / (time.perf_counter() - start),
            }
        )
    if args.device == "cuda":
        torch.cuda.synchronize()
    profile.stop()
    profile.export_chrome_trace(args.profile)
    numel = sum(parameter.numel() for parameter in program.model.parameters())
    report({"final": True, **vars(args), "params": numel, "caching_allocator": peaks(args.device)})


def peaks(device):
    """Returns the peaks of PyTorch's caching allocator, in bytes, with the field names of ./fsdp
    train; None on the CPU."""
    if device != "cuda":
        return None
    return {
        "peak_allocated": [torch.cuda.max_memory_allocated()],
        "peak_reserved": [torch.cuda.max_memory_reserved()],
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--mode", choices=PROGRAMS, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--model", choices=sorted(MODELS), required=True)
    for name in ("batch", "seq", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("json", "profile"):
        parser.add_argument(f"--{name}", required=True, metavar="FILE")
    return parser.parse_args()


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder, open(args.json, "w") as out:
        store = dist.FileStore(str(pathlib.Path(folder, "store")), 1)
        dist.init_process_group(
            "nccl" if args.device == "cuda" else "gloo", store=store, rank=0, world_size=1
        )
        train(args, lambda line: print(json.dumps(line), file=out, flush=True))
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
