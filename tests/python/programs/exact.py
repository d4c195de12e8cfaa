"""What is never quantized, in the core: types, layouts, splits, refusals and counted bytes."""

from __future__ import annotations

import torch
import torch.distributed as dist

import agoq_comm
from checks import Checks
from programs.common import LARGE, data, equal, premul_sum
from ranks import Rank

checks = Checks()
# The last two the core only moves; it cannot reduce them.
MOVED = (torch.bfloat16, torch.bool, torch.int64, torch.complex64, torch.uint16, torch.float8_e5m2)
COUNTS = (0, 1, 1000, LARGE)


def _of(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(count) % 50 + rank).to(torch.uint8).to(dtype)


def _same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == expected.dtype
    equal(actual.view(torch.uint8), expected.view(torch.uint8))


@checks
def every_type_is_moved_from_every_root(me: Rank) -> None:
    for dtype in MOVED:
        for count in COUNTS:
            for root in range(me.size):
                x = _of(me.rank, count, dtype)
                dist.broadcast(x, root)
                _same(x, _of(root, count, dtype))
                parts = [torch.empty(count, dtype=dtype) for _ in range(me.size)]
                mine = parts if me.rank == root else None
                dist.gather(_of(me.rank, count, dtype), mine, root)
                for rank, part in enumerate(mine or []):
                    _same(part, _of(rank, count, dtype))
                x = torch.empty(count, dtype=dtype)
                dist.scatter(x, mine, root)
                _same(x, _of(me.rank, count, dtype))


@checks
def all_to_all_of_every_type_with_uneven_splits(me: Rank) -> None:
    for dtype in MOVED:
        for scale in (0, 1, 20_000):
            sends = [scale * (r + me.rank) for r in range(me.size)]
            x = torch.cat([_of(10 * me.rank + r, n, dtype) for r, n in enumerate(sends)])
            out = torch.empty(sum(sends), dtype=dtype)  # The splits are symmetric.
            dist.all_to_all_single(out, x, sends, sends)
            for r, part in enumerate(out.split(sends)):
                _same(part, _of(10 * r + me.rank, sends[r], dtype))


@checks
def rows_are_split_whole(me: Rank) -> None:
    x = torch.arange(6.0 * me.size).view(2 * me.size, 3) + 1000 * me.rank
    out = torch.empty(2 * me.size, 3)
    dist.all_to_all_single(out, x)
    for r, part in enumerate(out.split(2)):
        equal(part, torch.arange(6.0).view(2, 3) + 6 * me.rank + 1000 * r)


@checks
def layouts_that_are_not_contiguous(me: Rank) -> None:
    root = me.size - 1
    x = (torch.arange(12.0).view(3, 4) + me.rank).t()
    dist.broadcast(x, root)
    equal(x, (torch.arange(12.0).view(3, 4) + root).t())
    x = (torch.arange(12.0).view(3, 4) + me.rank).t()
    dist.reduce(x, root)
    if me.rank == root:
        equal(x, (torch.arange(12.0).view(3, 4) * me.size + sum(range(me.size))).t())
    parts = [torch.empty(4, 3).t() for _ in range(me.size)] if me.rank == root else None
    dist.gather(torch.full((3, 4), float(me.rank)), parts, root)
    for rank, part in enumerate(parts or []):
        equal(part, torch.full((3, 4), float(rank)))
    out = torch.empty(4, 3).t()
    dist.scatter(out, parts, root)
    equal(out, torch.full((3, 4), float(me.rank)))
    outs = [torch.empty(4, 3).t() for _ in range(me.size)]
    dist.all_to_all(outs, [torch.full((4, 3), float(me.rank)).t()] * me.size)
    for rank, part in enumerate(outs):
        equal(part, torch.full((3, 4), float(rank)))


@checks
def reduce_knows_every_operation(me: Rank) -> None:
    inputs = torch.stack([data(r) for r in range(me.size)])
    total = inputs[0].clone()
    for x in inputs[1:]:
        total += x
    for op, expected in (
        (dist.ReduceOp.SUM, total),  # In rank order, bit for bit.
        (dist.ReduceOp.MAX, inputs.amax(0)),
        (premul_sum(0.5), total * 0.5),
    ):
        x = inputs[me.rank].clone()
        dist.reduce(x, 1, op=op)
        equal(x, expected if me.rank == 1 else inputs[me.rank])


@checks
def small_and_large_exact_sums_repeat_bit_for_bit(me: Rank) -> None:
    """The same numbers alone, in one shot, and as the start of a call in two phases."""
    large = data(me.rank).double()
    small = large[:100].clone()
    dist.all_reduce(large)
    dist.all_reduce(small)
    equal(small, large[:100])


@checks
def bytes_are_counted_where_they_are_sent(me: Rank) -> None:
    group = dist.new_group()
    x = torch.ones(LARGE)
    dist.broadcast(x, 0, group=group)
    dist.reduce(x, 0, group=group)
    dist.all_to_all_single(torch.empty(4 * me.size), torch.ones(4 * me.size), group=group)
    dist.barrier(group=group)
    counted = agoq_comm.stats(group)
    others = me.size - 1
    assert counted["broadcast"]["wire_bytes"] == (0 if me.rank else others * 4 * LARGE), counted
    assert counted["reduce"]["wire_bytes"] == (4 * LARGE if me.rank else 0), counted
    assert counted["all_to_all"]["wire_bytes"] == others * 16, counted
    assert counted["all_to_all"]["elements"] == 4 * me.size, counted
    assert counted["barrier"]["calls"] == 1 and counted["barrier"]["wire_bytes"] == 0, counted


@checks
def what_does_not_fit_is_refused_and_harms_nothing(me: Rank) -> None:
    ones = [torch.ones(5) for _ in range(me.size)]
    for call in (
        lambda: dist.all_to_all([torch.empty(5)] * (me.size + 1), ones),
        lambda: dist.all_to_all([torch.empty(5).half() for _ in ones], ones),
        lambda: dist.all_to_all_single(torch.empty(5 * me.size).half(), torch.ones(5 * me.size)),
        lambda: dist.all_to_all_single(torch.empty(4 * me.size), torch.ones(4 * me.size + 1)),
        lambda: dist.all_to_all_single(
            torch.empty(4 * me.size), torch.ones(4 * me.size), None, [1] * me.size
        ),
        lambda: dist.reduce(torch.ones(5), 0, op=dist.ReduceOp.BXOR),
        lambda: dist.reduce(torch.ones(5).to(torch.uint16), 0),
    ):
        try:
            call()
        except (ValueError, RuntimeError, TypeError) as error:
            assert len(str(error).splitlines()[0]) > 20, error
        else:
            raise AssertionError("accepted")
    x = torch.full((3,), float(me.rank))
    dist.broadcast(x, 1)
    equal(x, torch.ones(3))
