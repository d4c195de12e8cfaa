"""What the allocator of a device gave out while something ran."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Usage:
    """Bytes of one call, beyond those in use when it began.

    Parameters
    ----------
    held : int
        Still in use when it returned.
    peak : int
        Most in use at once.
    """

    held: int
    peak: int


def measure(call: Callable[[], object], device: torch.device) -> Usage:
    """Run `call` and return what the device's allocator says.

    On a GPU the allocator keeps these counters. On a CPU the profiler listens to every allocation;
    nothing else in the process may allocate tensors or profile meanwhile.
    """
    gc.collect()  # What is freed meanwhile without having to do with `call` would count against it.
    if device.type == "cuda":
        return _measure_cuda(call, device)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()  # Bound to a name, so that what it holds is held until the end.
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    in_use = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        in_use += event.nbytes()
        peak = max(peak, in_use)
    del result
    return Usage(in_use, peak)


def _measure_cuda(call: Callable[[], object], device: torch.device) -> Usage:
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = call()
    torch.cuda.synchronize(device)
    held = torch.cuda.memory_allocated(device) - before
    peak = torch.cuda.max_memory_allocated(device) - before
    del result
    return Usage(held, peak)
