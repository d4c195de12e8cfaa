"""Results of the default group's collectives, for comparison with those of threads."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
from programs.common import data
from ranks import Rank

COUNTS = (16_384, 50_003, 300_001)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def digest(x: torch.Tensor) -> str:
    """SHA-256 of the tensor's bytes."""
    return hashlib.sha256(x.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def options(rounding: str, **others: Any) -> agoq_comm.Options:
    """All three collectives quantized, with one rounding or the other."""
    quantize = ["all_reduce", "reduce_scatter", "all_gather"]
    return agoq_comm.Options(quantize=quantize, rounding=rounding, seed=5, **others)


def cases(rank: int, size: int):
    """(name, input of all_reduce and all_gather, inputs of reduce_scatter) of every case."""
    for dtype in DTYPES:
        for count in COUNTS:
            seed = count % 97
            parts = [data(rank, count, dtype=dtype, seed=seed + 1 + o) for o in range(size)]
            yield f"{dtype}/{count}", data(rank, count, dtype=dtype, seed=seed), parts


def backend(me: Rank) -> dict[str, list[str]]:
    """Digests of the backend's results, over the transport that the launch names."""
    me.init_process_group(pg_options=options(**me.arguments))
    seen = {}
    for name, x, parts in cases(me.rank, me.size):
        out = torch.empty_like(parts[me.rank])
        everything = x.new_empty(me.size * x.numel())
        dist.all_gather_into_tensor(everything, x)
        dist.all_reduce(x)
        dist.reduce_scatter(out, parts)
        seen[name] = [digest(x), digest(out), digest(everything)]
    dist.destroy_process_group()
    return seen
