"""Predicts how long a collective takes, and chooses the algorithm and the segment.

A call is a pipeline. Its resources, the rank's core, its node's links and the port to other nodes,
work at once on different segments, so that the busiest of them sets the time; what the others do
shows once, while the first segment passes through (`steps` segments share that cost). To this come
the latencies of the phases. Not modelled: contention inside a switch, and ranks that come late.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from agoq_comm._C import Options
from agoq_comm.plan.algorithms import QUANTIZED, Operation, phases
from agoq_comm.plan.cluster import Cluster
from agoq_comm.plan.wire import Format

__all__ = ["SEGMENTS", "Prediction", "choose", "predict"]

DEFAULT_SEGMENT: int = Options().segment_numel
# Like the default, none is a message that just exceeds a multiple of 64 KiB.
SEGMENTS: tuple[int, ...] = tuple(DEFAULT_SEGMENT * 2**power // 16 for power in range(9))


@dataclass(frozen=True)
class Prediction:
    """What a call is expected to take.

    Attributes
    ----------
    algorithm : str
        Which one.
    segment_numel : int
        What to set in `agoq_comm.Options`.
    seconds : float
        From the moment that all ranks have called until the last has its result.
    core_seconds, within_seconds, between_seconds : float
        How long a rank's core, the links of a node and a node's port are busy in that time.
    node_bytes : float
        Bytes that leave a node.
    """

    algorithm: str
    segment_numel: int
    seconds: float
    core_seconds: float
    within_seconds: float
    between_seconds: float
    node_bytes: float

    @property
    def bound(self) -> str:
        """What sets the time: ``"core"``, ``"within"``, ``"between"`` or ``"latency"``."""
        busy = {
            "core": self.core_seconds,
            "within": self.within_seconds,
            "between": self.between_seconds,
        }
        longest = max(busy, key=lambda name: busy[name])
        return longest if busy[longest] >= self.seconds / 2 else "latency"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "bound": self.bound}


def predict(
    cluster: Cluster,
    algorithm: str,
    count: int,
    *,
    operation: Operation = Operation.ALL_REDUCE,
    itemsize: int = 4,
    format: Format = Format(),  # noqa: B008 - immutable
    segment_numel: int = DEFAULT_SEGMENT,
) -> Prediction:
    """Predict one call.

    Parameters
    ----------
    cluster : Cluster
        The machines.
    algorithm : str
        One of `agoq_comm.plan.ALGORITHMS`.
    count : int
        Elements of the whole buffer.
    operation : Operation
        The collective.
    itemsize : int
        Bytes of an element as the caller has it.
    format : Format
        Of quantized algorithms.
    segment_numel : int
        As in `agoq_comm.Options`: elements that travel at once, or bytes in an exact algorithm.

    Raises
    ------
    ValueError
        Of an argument that makes no sense: the message says which.
    """
    if itemsize not in (1, 2, 4, 8, 16):
        raise ValueError(f"plan: itemsize is {itemsize}; it is 1, 2, 4, 8 or 16 bytes")
    if segment_numel < 1:
        raise ValueError(f"plan: segment_numel is {segment_numel}; it must be at least 1")
    compute, near, far = cluster.compute, cluster.within, cluster.between
    a_byte = format.bytes_per_element if algorithm in QUANTIZED else itemsize
    segment = segment_numel if algorithm in QUANTIZED else max(1, segment_numel // itemsize)
    steps = max(1, -(-count // (segment * cluster.ranks)))
    core = within = between = latency = 0.0
    # Of a byte to a rank of the node: seconds of the core, or of a link beside it.
    copy = 1 / near.bandwidth if near.copied and algorithm not in QUANTIZED else 0.0
    carry = 0.0 if near.copied else 1 / near.bandwidth
    for phase in phases(algorithm, cluster, count, operation):
        messages = (phase.peers_within + phase.peers_between) * phase.rounds * steps
        core += (
            phase.encoded / compute.encode
            + phase.summed / compute.sum
            + phase.decoded / compute.decode
            # What a rank sends it also receives.
            + 2 * phase.between * a_byte / compute.transport
            + phase.within * a_byte * copy
            + 2 * messages * compute.message
        )
        within += phase.within * a_byte * carry
        # A node's ranks share its port.
        between += phase.between * a_byte * cluster.per_node / far.bandwidth
        slowest = far.latency if phase.between > 0 else near.latency if phase.within > 0 else 0.0
        latency += slowest * phase.rounds
    busiest = max(core, within, between)
    return Prediction(
        algorithm=algorithm,
        segment_numel=segment_numel,
        seconds=busiest + (core + within + between - busiest) / steps + latency,
        core_seconds=core,
        within_seconds=within,
        between_seconds=between,
        node_bytes=between * far.bandwidth,
    )


def choose(
    cluster: Cluster,
    count: int,
    *,
    operation: Operation = Operation.ALL_REDUCE,
    itemsize: int = 4,
    format: Format = Format(),  # noqa: B008 - immutable
    quantized: bool = True,
) -> Prediction:
    """Return the fastest of this library's algorithms, with the segment that suits it.

    Parameters
    ----------
    quantized : bool
        Whether encoding is allowed at all; exact algorithms always are.
    cluster, count, operation, itemsize, format
        See `predict`.
    """
    names = ["two_phase", "exact_two_level"]
    if quantized:
        names += ["flat", "two_level"]
    if operation is Operation.ALL_REDUCE:
        names.append("one_shot")
    if cluster.nodes == 1 or cluster.per_node == 1:
        names = [name for name in names if not name.endswith("two_level")]  # They are flat there.
    segments = [size for size in SEGMENTS if size % format.block == 0] or [format.block]
    return min(
        (
            predict(
                cluster,
                name,
                count,
                operation=operation,
                itemsize=itemsize,
                format=format,
                segment_numel=segment,
            )
            for name in names
            for segment in segments
        ),
        key=lambda prediction: prediction.seconds,
    )
