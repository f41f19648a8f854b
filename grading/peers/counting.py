"""Counts the bytes that a rank moves in the collectives of PyTorch's FSDP2 and DDP: (W - 1) / W of
the whole tensor, and twice as much for an all-reduce."""

import collections
import contextlib

import torch.distributed as dist


@contextlib.contextmanager
def counted_collectives(world):
    """Yields a Counter, operation -> bytes, of the all-gathers and reduce-scatters that FSDP2 calls
    inside the `with` block."""
    moved = collections.Counter()

    def counted(function, operation, keyword, position):
        def call(*args, **kwargs):
            whole = kwargs[keyword] if keyword in kwargs else args[position]
            moved[operation] += whole.nbytes * (world - 1) // world
            return function(*args, **kwargs)

        return call

    gather, scatter = dist.all_gather_into_tensor, dist.reduce_scatter_tensor
    dist.all_gather_into_tensor = counted(gather, "all_gather", "output_tensor", 0)
    dist.reduce_scatter_tensor = counted(scatter, "reduce_scatter", "input", 1)
    try:
        yield moved
    finally:
        dist.all_gather_into_tensor, dist.reduce_scatter_tensor = gather, scatter


def ddp_bytes(model, world):
    """Returns a dict, operation -> bytes of DDP's all-reduces in one step. Call it after the second
    step, in which DDP rebuilds its buckets."""
    sizes = model._get_ddp_logging_data()
    sizes = sizes.get("rebuilt_bucket_sizes") or sizes["bucket_sizes"]
    whole = sum(int(size) for size in sizes.split(","))
    return {"all_reduce": 2 * (world - 1) * whole // world}
