"""Bytes that a rank sends in one call, to the byte: what its counters will say."""

from __future__ import annotations

from dataclasses import dataclass

from agoq_comm.plan.algorithms import QUANTIZED, Operation
from agoq_comm.plan.cluster import Cluster
from agoq_comm.plan.wire import Format, balanced_chunks

__all__ = ["Sent", "sent_bytes"]

_EXACT_BLOCK = 64  # elements that no exact chunk cuts through


@dataclass(frozen=True)
class Sent:
    """Bytes a rank sends.

    Attributes
    ----------
    within, between : int
        To ranks of its own node, and to others.
    """

    within: int
    between: int

    @property
    def total(self) -> int:
        """What the counter ``wire_bytes`` says."""
        return self.within + self.between

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.within + other.within, self.between + other.between)


def sent_bytes(
    cluster: Cluster,
    algorithm: str,
    count: int,
    rank: int,
    *,
    operation: Operation = Operation.ALL_REDUCE,
    itemsize: int = 4,
    format: Format = Format(),  # noqa: B008 - immutable
) -> Sent:
    """Return the bytes that `rank` sends to the others.

    Parameters
    ----------
    cluster : Cluster
        The machines.
    algorithm : str
        One of this library's: any of `agoq_comm.plan.ALGORITHMS` but ``"ring"``.
    count : int
        Elements of the whole buffer; a reduce-scatter's and an all-gather's parts are equal.
    rank : int
        Which rank: chunks may differ by a block.
    operation, itemsize, format
        See `agoq_comm.plan.predict`.
    """
    if not 0 <= rank < cluster.ranks:
        raise ValueError(f"plan: there is no rank {rank} among {cluster.ranks}")
    near, far = cluster.per_node - 1, cluster.ranks - cluster.per_node
    if algorithm == "one_shot":
        return Sent(near * count * itemsize, far * count * itemsize)
    if algorithm in ("two_phase", "flat"):
        halves = _flat
    elif algorithm in ("exact_two_level", "two_level"):
        halves = _two_level
    else:
        raise ValueError(f"plan: nobody has counted the bytes of {algorithm!r} one by one")
    block = format.block if algorithm in QUANTIZED else _EXACT_BLOCK
    if operation is not Operation.ALL_REDUCE:
        chunks = _equal_chunks(count, cluster.ranks)
    elif halves is _flat:
        chunks = balanced_chunks(count, cluster.ranks, block)
    else:
        chunks = _chunks_by_node(count, cluster, block)
    encoded = algorithm in QUANTIZED
    sizes = [format.encoded_bytes(n) if encoded else n * itemsize for n in chunks]
    reduce, gather = halves(cluster, sizes, rank)
    if operation is Operation.REDUCE_SCATTER:
        return reduce
    return gather if operation is Operation.ALL_GATHER else reduce + gather


def _equal_chunks(count: int, ranks: int) -> list[int]:
    if count % ranks:
        raise ValueError(f"plan: {count} elements are not {ranks} equal parts")
    return [count // ranks] * ranks


def _chunks_by_node(count: int, cluster: Cluster, block: int) -> list[int]:
    """Every node owns as many blocks as another, and shares them among its ranks."""
    blocks = -(-count // block)
    chunks = []
    for node in range(cluster.nodes):
        of_node = blocks // cluster.nodes + (node < blocks % cluster.nodes)
        for own in balanced_chunks(of_node, cluster.per_node, 1):
            chunks.append(min(own * block, count))
            count -= chunks[-1]
    return chunks


def _flat(cluster: Cluster, sizes: list[int], rank: int) -> tuple[Sent, Sent]:
    """To the owners, and from one."""
    near, far = cluster.per_node - 1, cluster.ranks - cluster.per_node
    own = sizes[rank]
    first = rank // cluster.per_node * cluster.per_node
    of_node = sum(sizes[first : first + cluster.per_node])
    reduce = Sent(of_node - own, sum(sizes) - of_node)
    return reduce, Sent(near * own, far * own)


def _two_level(cluster: Cluster, sizes: list[int], rank: int) -> tuple[Sent, Sent]:
    """A rank collects, for its node, the chunks of its number's ranks on the other nodes."""
    near = cluster.per_node - 1
    own = sizes[rank]
    collected = sum(sizes[rank % cluster.per_node :: cluster.per_node]) - own
    reduce = Sent(sum(sizes) - own - collected, collected)
    return reduce, Sent(near * (own + collected), (cluster.nodes - 1) * own)
