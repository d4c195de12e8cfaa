"""Random collectives over several groups, several in flight, each compared with the contract."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import agoq_comm
import oracle
from programs.common import equal
from ranks import Rank

DEPTH = 6  # Calls in flight.
BLOCK = 64
FLOATS = (torch.float32, torch.float32, torch.bfloat16, torch.float16)
OTHERS = (torch.float64, torch.int32, torch.uint8)
SUMS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.AVG, "max": dist.ReduceOp.MAX}


@dataclass
class Group:
    """One process group of the soak, and its ranks among the world's."""

    handle: Any
    ranks: list[int]
    min_numel: int


@dataclass
class Pending:
    """A call in flight."""

    work: Any
    check: Callable[[], None]
    inputs: Any  # Kept alive until the call has ended.


def _groups(me: Rank) -> list[Group]:
    world = list(range(me.size))
    plans = [(world, 300), (world, 5000), (world[:-1], 1), (world[1:], 1 << 40)]
    groups = []
    for ranks, min_numel in plans:
        options = agoq_comm.Options(
            block=BLOCK,
            min_numel=min_numel,
            quantize=["all_reduce", "reduce_scatter", "all_gather"],
            segment_numel=2048,
            transport=me.arguments["transport"],
        )
        groups.append(Group(dist.new_group(ranks, pg_options=options), ranks, min_numel))
    return groups


def _numbers(seed: int, rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    rng = np.random.default_rng([seed, rank])
    if dtype in FLOATS:
        x = rng.standard_normal(count) * 2.0 ** rng.integers(-20, 20)
        return torch.from_numpy(x.astype(np.float32)).to(dtype)
    return torch.from_numpy(rng.integers(0, 30, count)).to(dtype)


def _exact(inputs: list[torch.Tensor], op: str) -> torch.Tensor:
    """In rank order; narrow floats in float32."""
    dtype = inputs[0].dtype
    wide = [x.float() if dtype in FLOATS else x for x in inputs]
    total = wide[0].clone()
    for x in wide[1:]:
        total = torch.maximum(total, x) if op == "max" else total + x
    if op == "avg":
        size = len(inputs)
        total = total * (1 / size) if dtype.is_floating_point else total // size
    return total.to(dtype)


class Soak:
    """One rank's run. The plan is drawn from the seed alone, so alike on all ranks."""

    def __init__(self, me: Rank) -> None:
        self.me = me
        self.groups = _groups(me)
        self.plan = np.random.default_rng(me.arguments["seed"])
        # When a rank waits is its own affair.
        self.whim = np.random.default_rng([me.arguments["seed"], me.rank])
        self.pending: deque[Pending] = deque()
        self.checked = 0

    def run(self, calls: int) -> int:
        """Make that many calls; return how many results this rank has compared."""
        for number in range(calls):
            self._call(number)
            while len(self.pending) > int(self.whim.integers(0, DEPTH + 1)):
                self._finish()
        while self.pending:
            self._finish()
        return self.checked

    def _finish(self) -> None:
        pending = self.pending.popleft()
        if pending.work is not None:
            pending.work.wait()
        pending.check()
        self.checked += 1

    def _call(self, number: int) -> None:
        draw = self.plan
        group = self.groups[draw.integers(len(self.groups))]
        types = FLOATS if draw.random() < 0.75 else OTHERS
        dtype = types[draw.integers(len(types))]
        op = list(SUMS)[draw.integers(len(SUMS))]
        count = int(draw.integers(0, 2 ** int(draw.integers(1, 15))))
        kind = str(draw.choice(["all_reduce", "reduce_scatter", "all_gather", "broadcast"]))
        asynchronous = bool(draw.random() < 0.7)
        root = int(draw.integers(len(group.ranks)))
        if self.me.rank not in group.ranks:
            return
        if dtype not in FLOATS and op == "avg":
            op = "sum"
        getattr(self, f"_{kind}")(group, number, dtype, op, count, asynchronous, root)

    def _add(self, work: Any, result: Any, expected: Callable[[], torch.Tensor], what: str) -> None:
        def check() -> None:
            try:
                equal(result, expected())
            except AssertionError as error:
                raise AssertionError(what) from error

        self.pending.append(Pending(work, check, result))

    def _quantized(self, group: Group, dtype: torch.dtype, op: str, seen: int) -> bool:
        return dtype in FLOATS and op != "max" and seen >= group.min_numel

    def _all_reduce(self, group, number, dtype, op, count, asynchronous, root) -> None:
        inputs = [_numbers(number, r, count, dtype) for r in group.ranks]
        x = inputs[group.ranks.index(self.me.rank)].clone()
        work = dist.all_reduce(x, SUMS[op], group=group.handle, async_op=asynchronous)

        def expected() -> torch.Tensor:
            if not self._quantized(group, dtype, op, count):
                return _exact(inputs, op)
            name = str(dtype).removeprefix("torch.")
            arrays = [i.float().numpy() for i in inputs]
            return torch.from_numpy(oracle.all_reduce(arrays, name, op, block=BLOCK)).to(dtype)

        self._add(work, x, expected, f"call {number}: all_reduce {dtype} {op} {count}")

    def _reduce_scatter(self, group, number, dtype, op, count, asynchronous, root) -> None:
        size, own = len(group.ranks), group.ranks.index(self.me.rank)
        inputs = [_numbers(number, r, count * size, dtype) for r in group.ranks]
        mine = inputs[own].clone()
        in_place = number % 2 == 0
        out = mine[own * count : (own + 1) * count] if in_place else mine.new_empty(count)
        work = dist.reduce_scatter_tensor(
            out, mine, SUMS[op], group=group.handle, async_op=asynchronous
        )

        def expected() -> torch.Tensor:
            pieces = [list(x.split(count)) if count else [x] * size for x in inputs]
            if not self._quantized(group, dtype, op, count * size):
                return _exact([row[own] for row in pieces], op)
            name = str(dtype).removeprefix("torch.")
            arrays = [[p.float().numpy() for p in row] for row in pieces]
            result = oracle.reduce_scatter(arrays, name, op, block=BLOCK)[own]
            return torch.from_numpy(result).to(dtype)

        self._add(work, out, expected, f"call {number}: reduce_scatter {dtype} {op} {count}")

    def _all_gather(self, group, number, dtype, op, count, asynchronous, root) -> None:
        size, own = len(group.ranks), group.ranks.index(self.me.rank)
        inputs = [_numbers(number, r, count, dtype) for r in group.ranks]
        out = torch.empty(count * size, dtype=dtype)
        work = dist.all_gather_into_tensor(
            out, inputs[own].clone(), group=group.handle, async_op=asynchronous
        )

        def expected() -> torch.Tensor:
            if not self._quantized(group, dtype, "sum", count * size):
                return torch.cat(inputs)
            name = str(dtype).removeprefix("torch.")
            seen = [
                oracle.round_to(oracle.roundtrip(x.float().numpy(), BLOCK), name) for x in inputs
            ]
            return torch.from_numpy(np.concatenate(seen)).to(dtype)

        self._add(work, out, expected, f"call {number}: all_gather {dtype} {count}")

    def _broadcast(self, group, number, dtype, op, count, asynchronous, root) -> None:
        x = _numbers(number, self.me.rank, count, dtype)
        source = group.ranks[root]
        work = dist.broadcast(x, source, group=group.handle, async_op=asynchronous)
        self._add(
            work, x, lambda: _numbers(number, source, count, dtype), f"call {number}: broadcast"
        )


def soak(me: Rank) -> int:
    """Run `calls` random calls; return how many results this rank compared."""
    me.init_process_group(timeout=120)
    checked = Soak(me).run(me.arguments["calls"])
    dist.destroy_process_group()
    return checked
