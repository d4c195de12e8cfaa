"""Ranks of this machine that pretend to be on several nodes, as AGOQ_NODE_ID lets them."""

from __future__ import annotations

import copy
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import agoq_comm
from programs.common import data, equal
from programs.parity import cases, digest
from ranks import Rank

QUANTIZE = ("all_reduce", "reduce_scatter", "all_gather")
COUNT = 1 << 20
EXACT_COUNT = 50_003


def _join(me: Rank, **options: Any) -> None:
    os.environ["AGOQ_NODE_ID"] = me.arguments["nodes"][me.rank]
    options.setdefault("transport", me.arguments.get("transport", "auto"))
    me.init_process_group(pg_options=agoq_comm.Options(quantize=QUANTIZE, **options))


def gathered(rank: int) -> torch.Tensor:
    """A rank's contribution to the all-gather."""
    return data(rank, 40_001, seed=5)


def results(me: Rank) -> dict[str, list[str]]:
    """Digests of quantized and exact results, in the terms of test_topology."""
    _join(me, segment_numel=me.arguments["segment_numel"])
    seen = {}
    for name, x, parts in cases(me.rank, me.size):
        out = torch.empty_like(parts[me.rank])
        dist.all_reduce(x)
        dist.reduce_scatter(out, parts)
        seen[name] = [digest(x), digest(out)]
    chunks = [torch.empty(40_001) for _ in range(me.size)]
    dist.all_gather(chunks, gathered(me.rank))
    seen["all_gather"] = [digest(chunk) for chunk in chunks]
    exact = data(me.rank, EXACT_COUNT).double()
    dist.all_reduce(exact)
    seen["exact"] = [digest(exact)]
    whole = torch.arange(EXACT_COUNT) + me.rank
    dist.all_reduce(whole)
    equal(whole, me.size * torch.arange(EXACT_COUNT) + sum(range(me.size)))
    dist.broadcast(whole, me.size - 1)
    equal(whole, me.size * torch.arange(EXACT_COUNT) + sum(range(me.size)))
    dist.destroy_process_group()
    return seen


def said_and_counted(me: Rank) -> dict[str, Any]:
    """What describe() and stats() say of one all-reduce."""
    _join(me, algorithm=me.arguments["algorithm"])
    dist.all_reduce(torch.ones(COUNT))
    seen = {"describe": agoq_comm.describe(), "stats": agoq_comm.stats()["all_reduce"]}
    dist.destroy_process_group()
    return seen


def ddp_step(me: Rank) -> dict[str, Any]:
    """Two steps of a model whose gradients travel in two levels."""
    _join(me)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, 192))
    reference = copy.deepcopy(model)
    parallel = DistributedDataParallel(model)
    world = torch.randn(8 * me.size, 192, generator=torch.Generator().manual_seed(2))
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (parallel, reference)]
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.zero_grad()
        parallel(world[8 * me.rank : 8 * (me.rank + 1)]).square().mean().backward()
        reference(world).square().mean().backward()
        errors = [
            float((p.grad - r.grad).norm() / r.grad.norm())
            for p, r in zip(model.parameters(), reference.parameters(), strict=True)
        ]
        for optimizer in optimizers:
            optimizer.step()
    # Of this group alone: what DDP and this check move themselves is exact.
    counted = agoq_comm.stats()["all_reduce"]
    weights = [digest(p.detach()) for p in model.parameters()]
    dist.destroy_process_group()
    return {"errors": errors, "weights": weights, "stats": counted}


def different_algorithms(me: Rank) -> str:
    """The error of ranks that were told different algorithms."""
    try:
        _join(me, algorithm="two_level" if me.rank == 1 else "flat")
    except RuntimeError as error:
        return str(error)
    raise AssertionError("accepted")
