"""Groups whose calls on a device are served otherwise than those on the CPU."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
import device_fake
from programs.common import LARGE, data, equal
from ranks import Rank


def more_ranks_than_the_kernels_take(me: Rank) -> dict[str, Any]:
    """Three ranks, with kernels that sum the pieces of two."""
    device_fake.load(me)
    device_fake.fake.set_max_ranks(2)
    me.init_process_group(timeout=60)
    for _ in range(2):
        x = torch.ones(LARGE).to("fake")
        dist.all_reduce(x)
        equal(x.cpu(), torch.full((LARGE,), 3.0))
    seen = {
        "reasons": agoq_comm.stats()["all_reduce"]["exact_by_reason"],
        "describe": agoq_comm.describe(),
    }
    dist.destroy_process_group()
    return seen


def on_two_nodes(me: Rank) -> dict[str, Any]:
    """Two ranks on one node and one on another."""
    os.environ["AGOQ_NODE_ID"] = "first" if me.rank < 2 else "second"
    device_fake.load(me)
    me.init_process_group(timeout=60)
    flat = dist.new_group(
        [0, 1, 2], backend=device_fake.BACKEND, pg_options=agoq_comm.Options(algorithm="flat")
    )
    of_flat, of_two_levels = data(me.rank), data(me.rank)
    dist.all_reduce(of_flat, group=flat)
    dist.all_reduce(of_two_levels)
    assert not torch.equal(of_flat, of_two_levels)
    on_cpu = agoq_comm.stats()["all_reduce"]
    x = data(me.rank).to("fake")
    dist.all_reduce(x)
    seen = {
        "is_flat": torch.equal(x.cpu(), of_flat),
        "describe": agoq_comm.describe(),
        "on_cpu": on_cpu,
        "stats": agoq_comm.stats()["all_reduce"],
    }
    dist.destroy_process_group()
    return seen
