"""What the collectives of a rank move, by the textbook count: (W - 1) / W of the whole, of an
all-reduce twice."""

import collections
import contextlib

import torch.distributed as dist


@contextlib.contextmanager
def counted_collectives(world):
    """While it lasts, what FSDP2 gathers and scatters is added up in the Counter it yields:
    operation -> bytes."""
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
    """The same of DDP's all-reduces, after its buckets were rebuilt in the second step."""
    sizes = model._get_ddp_logging_data()
    sizes = sizes.get("rebuilt_bucket_sizes") or sizes["bucket_sizes"]
    whole = sum(int(size) for size in sizes.split(","))
    return {"all_reduce": 2 * (world - 1) * whole // world}
