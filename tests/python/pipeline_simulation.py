"""Pipeline schedules op by op: each rank's list as Megatron-LM builds it, run in dependency order.

Written from Megatron's schedules and not from the formula that it is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """One pass of one microbatch through one model chunk of a rank."""

    forward: bool
    microbatch: int
    chunk: int


def rank_ops(kind: str, p: int, rank: int, v: int, group: int, m: int) -> list[Op]:
    """Order of one rank: warm-up, steady state, cool-down."""
    forwards = [
        Op(True, microbatch, chunk)
        for first in range(0, m, group)
        for chunk in range(v)
        for microbatch in range(first, min(first + group, m))
    ]
    backwards = [Op(False, op.microbatch, v - 1 - op.chunk) for op in forwards]
    if kind == "gpipe":
        warm_up = len(forwards)
    elif v == 1:
        warm_up = p - rank - 1
    else:
        warm_up = (p - rank - 1) * 2 + (v - 1) * group
    warm_up = min(warm_up, len(forwards))
    steady = [
        op
        for pair in zip(forwards[warm_up:], backwards[: len(forwards) - warm_up], strict=True)
        for op in pair
    ]
    return forwards[:warm_up] + steady + backwards[len(forwards) - warm_up :]


def peaks(lists: list[list[Op]], v: int, nbytes: Callable[[int, int], int]) -> list[int]:
    """Run all ranks' lists; return the most bytes each held. `nbytes` is of (rank, chunk)."""
    p = len(lists)
    done: set[tuple[int, Op]] = set()
    position, held, most = [0] * p, [0] * p, [0] * p

    def ready(rank: int, op: Op) -> bool:
        if op.forward:
            if rank > 0:
                return (rank - 1, op) in done
            return op.chunk == 0 or (p - 1, Op(True, op.microbatch, op.chunk - 1)) in done
        if (rank, Op(True, op.microbatch, op.chunk)) not in done:
            return False
        if rank < p - 1:
            return (rank + 1, op) in done
        return op.chunk == v - 1 or (0, Op(False, op.microbatch, op.chunk + 1)) in done

    while any(position[r] < len(lists[r]) for r in range(p)):
        moved = False
        for rank, ops in enumerate(lists):
            while position[rank] < len(ops) and ready(rank, ops[position[rank]]):
                op = ops[position[rank]]
                held[rank] += nbytes(rank, op.chunk) * (1 if op.forward else -1)
                most[rank] = max(most[rank], held[rank])
                done.add((rank, op))
                position[rank] += 1
                moved = True
        assert moved, f"no rank can go on: {position} of {[len(ops) for ops in lists]}"
    assert held == [0] * p
    return most
