"""Bytes of a rank: tensor storage alive, and what its collectives move.

Storage is counted by the train program's own counter (libpeers_counter.so, from common/memory),
put in place of torch's CPU allocator before the process has a tensor. torch.profiler would not
do: a block that a gloo thread frees after its operation goes unseen, and the sum drifts by
whole units."""

import collections
import contextlib
import ctypes

import torch.distributed as dist


class LiveBytes:
    """Counts in this process from now on. Call before the first tensor."""

    def __init__(self, library):
        self._counter = ctypes.CDLL(library)
        self._counter.counter_phase_name.restype = ctypes.c_char_p
        self._counter.counter_peak.restype = ctypes.c_int64
        self._counter.counter_peak_total.restype = ctypes.c_int64
        count = self._counter.counter_phases()
        self._phases = {
            self._counter.counter_phase_name(phase).decode(): phase for phase in range(count)
        }
        self._counter.counter_install()

    def enter(self, phase):
        self._counter.counter_enter(self._phases[phase])

    def forget_phases(self):
        self._counter.counter_forget_phases()

    def result(self):
        phases = {name: self._counter.counter_peak(phase) for name, phase in self._phases.items()}
        return {"peak_bytes": self._counter.counter_peak_total(), "phase_bytes": phases}


class NoLiveBytes:
    """torch's own allocator, nothing counted."""

    def enter(self, phase):
        pass

    def forget_phases(self):
        pass

    def result(self):
        return {}


@contextlib.contextmanager
def counted_collectives(world):
    """While it lasts, what FSDP2 gathers and scatters is added up in the Counter it yields:
    operation -> bytes by the textbook count, (W - 1) / W of the whole."""
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
