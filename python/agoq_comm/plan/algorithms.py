"""What each algorithm sends and computes: an `Algorithm` is its name and its phases.

In a phase every rank sends to some others at once and works on what it gets. Figures are those of
an average rank, in elements of the whole buffer of `count`.

The algorithms of the library:

one_shot
    Everyone sends everything to everyone, and sums: exact, for short messages.
two_phase
    Every chunk straight to its owner, who sums it and sends the sum to all: exact.
flat
    The same with encoded pieces and sums.
two_level, exact_two_level
    First among the ranks of a node, then between ranks of one number on all nodes, encoded or not;
    sums travel back the same way.

And, to compare with, what most other libraries do:

ring
    Each chunk goes around a ring in rank order, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from agoq_comm.plan.cluster import Cluster

__all__ = ["ALGORITHMS", "QUANTIZED", "Operation", "Phase", "phases"]


class Operation(Enum):
    """The collectives that the model knows; `count` is that of the whole buffer."""

    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_GATHER = "all_gather"


@dataclass(frozen=True)
class Phase:
    """One exchange.

    Attributes
    ----------
    within, between : float
        Elements a rank sends to ranks of its node, and of others.
    peers_within, peers_between : int
        Messages a step.
    encoded, summed, decoded : float
        Elements a rank encodes, adds to a sum, and decodes.
    rounds : int
        Exchanges that wait for one another, of which the figures are the totals.
    """

    within: float = 0.0
    between: float = 0.0
    peers_within: int = 0
    peers_between: int = 0
    encoded: float = 0.0
    summed: float = 0.0
    decoded: float = 0.0
    rounds: int = 1


def _direct(
    cluster: Cluster, each: float, encoded: float = 0, summed: float = 0, decoded: float = 0
) -> Phase:
    """Everyone sends `each` elements to every other rank."""
    near = cluster.per_node - 1
    far = cluster.ranks - cluster.per_node
    return Phase(near * each, far * each, near, far, encoded, summed, decoded)


def _two_phase(cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    chunk = count / cluster.ranks
    others = count - chunk
    reduce = _direct(cluster, chunk, summed=others)
    gather = _direct(cluster, chunk)
    return _select(operation, [reduce], [gather])


def _flat(cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    chunk = count / cluster.ranks
    others = count - chunk
    reduce = _direct(cluster, chunk, encoded=others, summed=others)
    gather = _direct(cluster, chunk, encoded=chunk, decoded=count)
    return _select(operation, [reduce], [gather])


def _two_level(cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    exact = _exact_two_level(cluster, count, operation)
    chunk = count / cluster.ranks
    first, last = exact[0], exact[-1]
    if operation is not Operation.ALL_GATHER:
        # Pieces are encoded once, and a node's sums once more.
        exact[0] = replace(first, encoded=first.within)
        exact[1] = replace(exact[1], encoded=exact[1].between)
    if operation is not Operation.REDUCE_SCATTER:
        exact[-2] = replace(exact[-2], encoded=chunk)
        exact[-1] = replace(last, decoded=count)
    return exact


def _exact_two_level(cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    per_node, nodes = cluster.per_node, cluster.nodes
    # A rank owns a part of the buffer in its node, and of that part a chunk among the nodes.
    part = count / per_node
    chunk = part / nodes
    near, far = per_node - 1, nodes - 1
    reduce = [
        Phase(near * part, 0, near, 0, summed=near * part),
        Phase(0, far * chunk, 0, far, summed=far * chunk),
    ]
    gather = [Phase(0, far * chunk, 0, far), Phase(near * part, 0, near, 0)]
    return _select(operation, reduce, gather)


def _one_shot(cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    if operation is not Operation.ALL_REDUCE:
        raise ValueError(f"plan: one_shot is an all-reduce, not {operation.value}")
    return [_direct(cluster, count, summed=(cluster.ranks - 1) * count)]


def _ring(cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    ranks = cluster.ranks
    others = count * (ranks - 1) / ranks
    # One of a node's ranks has its neighbour on the next node.
    far = 1 / cluster.per_node if cluster.nodes > 1 else 0.0
    gather = Phase(others * (1 - far), others * far, peers_between=1, rounds=ranks - 1)
    return _select(operation, [replace(gather, summed=others)], [gather])


def _select(operation: Operation, reduce: list[Phase], gather: list[Phase]) -> list[Phase]:
    if operation is Operation.REDUCE_SCATTER:
        return reduce
    if operation is Operation.ALL_GATHER:
        return gather
    return reduce + gather


ALGORITHMS: dict[str, Callable[[Cluster, float, Operation], list[Phase]]] = {
    "one_shot": _one_shot,
    "two_phase": _two_phase,
    "flat": _flat,
    "two_level": _two_level,
    "exact_two_level": _exact_two_level,
    "ring": _ring,
}
QUANTIZED = frozenset({"flat", "two_level"})


def phases(algorithm: str, cluster: Cluster, count: float, operation: Operation) -> list[Phase]:
    """Return an algorithm's phases for a buffer of `count` elements."""
    try:
        make = ALGORITHMS[algorithm]
    except KeyError:
        known = ", ".join(ALGORITHMS)
        raise ValueError(f"plan: there is no algorithm {algorithm!r}; there is {known}") from None
    if count < 0:
        raise ValueError(f"plan: count is {count}; it must be 0 or more")
    return make(cluster, count, operation) if cluster.ranks > 1 else [Phase()]
