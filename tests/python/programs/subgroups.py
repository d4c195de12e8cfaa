"""A group of an odd number of ranks that skips one of the world's; that one stays outside."""

from __future__ import annotations

import torch
import torch.distributed as dist

import agoq_comm
from checks import Checks
from programs.common import (
    LARGE,
    data,
    equal,
    quantized_all_reduce,
    quantized_reduce_scatter,
)
from ranks import Rank

checks = Checks()
MEMBERS = [0, 1, 3]  # Rank 3 is the group's rank 2: the two numberings differ.


def _group(me: Rank) -> dist.ProcessGroup | None:
    """The group, on its members; None on the rank outside."""
    group = dist.new_group(MEMBERS)
    return group if me.rank in MEMBERS else None


def _gathered(x: torch.Tensor, group: dist.ProcessGroup) -> list[torch.Tensor]:
    everyone = [torch.empty_like(x) for _ in MEMBERS]
    dist.all_gather(everyone, x, group=group)
    return everyone


@checks
def quantized_all_reduce_of_the_members(me: Rank) -> None:
    if group := _group(me):
        x = data(me.rank)
        dist.all_reduce(x, group=group)
        equal(x, quantized_all_reduce([data(r) for r in MEMBERS]))
        for other in _gathered(x, group):
            equal(other, x)
        assert agoq_comm.stats(group)["all_reduce"]["quantized_calls"] == 1


@checks
def exact_all_reduce_of_the_members(me: Rank) -> None:
    if group := _group(me):
        x = torch.arange(100.0) + me.rank
        dist.all_reduce(x, group=group)
        equal(x, 3 * torch.arange(100.0) + sum(MEMBERS))
        assert agoq_comm.stats(group)["all_reduce"]["exact_by_reason"] == {"small": 1}


@checks
def reduce_scatter_to_the_members(me: Rank) -> None:
    if group := _group(me):
        inputs = [[data(r, seed=owner) for owner in range(3)] for r in MEMBERS]
        mine = MEMBERS.index(me.rank)
        out = torch.empty(LARGE)
        dist.reduce_scatter_tensor(out, torch.cat(inputs[mine]), group=group)
        equal(out, quantized_reduce_scatter(inputs)[mine])
        assert agoq_comm.stats(group)["reduce_scatter"]["quantized_calls"] == 1


@checks
def all_gather_in_the_order_of_the_group(me: Rank) -> None:
    if group := _group(me):
        for r, x in zip(MEMBERS, _gathered(data(me.rank), group), strict=True):
            equal(x, data(r))


@checks
def the_rank_outside_is_no_member_and_the_world_goes_on(me: Rank) -> None:
    group = dist.new_group(MEMBERS)
    assert (group == dist.GroupMember.NON_GROUP_MEMBER) == (me.rank not in MEMBERS)
    x = data(me.rank)
    dist.all_reduce(x)
    equal(x, quantized_all_reduce([data(r) for r in range(me.size)]))
