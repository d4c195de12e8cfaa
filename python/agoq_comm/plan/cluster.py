"""What a cost model knows about the machines: ranks, links, and how fast a rank computes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

__all__ = ["Cluster", "Compute", "Link"]


def _check_positive(what: str, **values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"plan: {what}'s {name} is {value}; it must be more than 0")


@dataclass(frozen=True)
class Link:
    """What joins ranks on one level: those of a node, or nodes.

    Parameters
    ----------
    bandwidth : float
        Bytes a second, each way: of a rank within a node, of a node's port between nodes.
    latency : float
        Seconds from one rank's send to the other's receive, of a short message.
    copied : bool
        The ranks' own cores move the bytes, as through shared memory. Then encoding writes to where
        the peer reads, and only exact bytes cost copies.
    """

    bandwidth: float
    latency: float = 20e-6
    copied: bool = False

    def __post_init__(self) -> None:
        _check_positive("a link", bandwidth=self.bandwidth)
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"plan: a link's latency is {self.latency}; it is 0 or more seconds")


@dataclass(frozen=True)
class Compute:
    """How fast one rank works, as it does while nobody else uses its cores.

    The defaults are those of one core of a Xeon with AVX-512, which `codec_bench` and the lab of
    slow links have measured; a GPU's are hundreds of times higher.

    Parameters
    ----------
    encode, sum, decode : float
        Elements a second that the codec encodes, adds, and decodes.
    transport : float
        Bytes a second, sent and received together, that a rank passes through sockets.
    message : float
        Seconds a message costs the rank, whatever its length.
    """

    encode: float = 2.1e9
    sum: float = 2.4e9
    decode: float = 3.6e9
    transport: float = 6.0e9
    message: float = 3e-6

    def __post_init__(self) -> None:
        _check_positive(
            "a rank",
            encode=self.encode,
            sum=self.sum,
            decode=self.decode,
            transport=self.transport,
        )
        if not 0 <= self.message < math.inf:
            raise ValueError(f"plan: a message costs {self.message}; it must be 0 or more seconds")

    def shared(self, cores_per_rank: float) -> Compute:
        """Return what is left of a rank's speed where cores are fewer than ranks."""
        share = min(1.0, cores_per_rank)
        _check_positive("a rank", cores=share)
        return Compute(
            self.encode * share,
            self.sum * share,
            self.decode * share,
            self.transport * share,
            self.message / share,
        )


@dataclass(frozen=True)
class Cluster:
    """Ranks on nodes of equally many.

    Parameters
    ----------
    ranks, per_node : int
        Ranks, and ranks of each node; numbered node by node.
    between, within : Link
        Links between nodes and within one.
    compute : Compute
        Speed of a rank.
    """

    ranks: int
    per_node: int
    between: Link
    within: Link = field(default_factory=lambda: Link(3.5e9, 2e-6, copied=True))
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.per_node < 1 or self.ranks % self.per_node:
            raise ValueError(
                f"plan: {self.ranks} ranks are not so many nodes of {self.per_node}; ranks must be "
                "a multiple of ranks per node, and both at least 1"
            )

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.ranks // self.per_node

    def at(self, bandwidth: float) -> Cluster:
        """Return the same ranks with another bandwidth (bytes a second) between nodes."""
        return replace(self, between=replace(self.between, bandwidth=bandwidth))
