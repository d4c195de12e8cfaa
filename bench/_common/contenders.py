"""The backends of a run, each a group or communicator of its own over the same ranks."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
from _common import launcher
from _common.collectives import Collectives, MpiCollectives, TorchCollectives

# What a row of the table may be called, beside "mpi" and the names of torch's backends. All-gather
# is quantized too, as it is not by default: whoever compares wants to see what it gains.
_AGOQ_VARIANTS: dict[str, dict[str, Any]] = {
    "agoq": {"quantize": ("all_reduce", "reduce_scatter", "all_gather")},
    "exact": {"quantize": ()},
}


@dataclass(frozen=True)
class Contender:
    """One backend, its calls, and its group if it is one of torch's."""

    name: str
    calls: Collectives
    group: dist.ProcessGroup | None

    @property
    def counts_bytes(self) -> bool:
        """Whether the backend counts what it sends."""
        return self.name in _AGOQ_VARIANTS

    def counters(self, operation: str) -> tuple[int, int]:
        """Quantized calls of `operation` so far and the bytes this rank sent in it."""
        counted = agoq_comm.stats(self.group).get(operation)
        return (counted["quantized_calls"], counted["wire_bytes"]) if counted else (0, 0)


def choose_device(name: str) -> torch.device:
    """Take this rank's device, and its share of the cores."""
    if name == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local_ranks))
    return torch.device("cpu")


@contextlib.contextmanager
def make_contenders(names: Sequence[str]) -> Iterator[list[Contender]]:
    """Join the ranks and make the groups; the default group is Gloo and is never measured."""
    launcher.join()
    try:
        yield [_make(name) for name in names]
    finally:
        dist.destroy_process_group()


def _make(name: str) -> Contender:
    if name == "mpi":
        world = launcher.mpi_world("the contender mpi")
        return Contender(name, MpiCollectives(world.Dup()), None)
    if name == "ccl":
        importlib.import_module("oneccl_bindings_for_pytorch")  # Registers oneCCL with torch.
    if name in _AGOQ_VARIANTS:
        options = agoq_comm.Options(**_AGOQ_VARIANTS[name])
        group = dist.new_group(backend="agoq", pg_options=options)
    else:
        group = dist.new_group(backend=name)
    return Contender(name, TorchCollectives(group), group)
