"""The backends of a run, each a group of its own over the same ranks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm

# What a row of the table may be called, beside the names of torch's backends.
_AGOQ_VARIANTS: dict[str, dict[str, Any]] = {
    "agoq": {},
    "exact": {"quantize": ()},
}


@dataclass(frozen=True)
class Contender:
    """One backend and the group that measures it."""

    name: str
    group: dist.ProcessGroup

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
    dist.init_process_group(backend="gloo")
    try:
        contenders = []
        for name in names:
            if name in _AGOQ_VARIANTS:
                options = agoq_comm.Options(**_AGOQ_VARIANTS[name])
                group = dist.new_group(backend="agoq", pg_options=options)
            else:
                group = dist.new_group(backend=name)
            contenders.append(Contender(name, group))
        yield contenders
    finally:
        dist.destroy_process_group()
