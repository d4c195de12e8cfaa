"""Bytes that a rank sends in one call, to the byte: what its counters will say."""

from __future__ import annotations

from agoq_comm.plan.algorithms import QUANTIZED, Operation
from agoq_comm.plan.cluster import Cluster
from agoq_comm.plan.wire import Format, balanced_chunks

__all__ = ["sent_bytes"]

_EXACT_BLOCK = 64  # elements that no exact chunk cuts through


def sent_bytes(
    cluster: Cluster,
    algorithm: str,
    count: int,
    rank: int,
    *,
    operation: Operation = Operation.ALL_REDUCE,
    itemsize: int = 4,
    format: Format = Format(),  # noqa: B008 - immutable
) -> int:
    """Return the bytes that `rank` sends to all others.

    Parameters
    ----------
    cluster : Cluster
        The machines.
    algorithm : str
        ``"one_shot"``, ``"two_phase"``, ``"flat"`` or ``"two_level"``.
    count : int
        Elements of the whole buffer; a reduce-scatter's and an all-gather's parts are equal.
    rank : int
        Which rank: chunks may differ by a block.
    operation, itemsize, format
        See `agoq_comm.plan.predict`.
    """
    if not 0 <= rank < cluster.ranks:
        raise ValueError(f"plan: there is no rank {rank} among {cluster.ranks}")
    block = format.block if algorithm in QUANTIZED else _EXACT_BLOCK

    def size(elements: int) -> int:
        return format.encoded_bytes(elements) if algorithm in QUANTIZED else elements * itemsize

    def chunks_of(elements: int, owners: int) -> list[int]:
        if operation is Operation.ALL_REDUCE:
            return balanced_chunks(elements, owners, block)
        if elements % owners:
            raise ValueError(f"plan: {elements} elements are not {owners} equal parts")
        return [elements // owners] * owners

    ranks = cluster.ranks
    if algorithm == "one_shot":
        return (ranks - 1) * count * itemsize
    if algorithm in ("two_phase", "flat"):
        chunks = [size(elements) for elements in chunks_of(count, ranks)]
        own = chunks[rank]
        return _select(operation, sum(chunks) - own, (ranks - 1) * own)
    raise ValueError(f"plan: nobody has counted the bytes of {algorithm!r} one by one")


def _select(operation: Operation, reduce: int, gather: int) -> int:
    if operation is Operation.REDUCE_SCATTER:
        return reduce
    return gather if operation is Operation.ALL_GATHER else reduce + gather
