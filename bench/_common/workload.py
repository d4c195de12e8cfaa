"""What a program measures, and how OSU's text names it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from _common.buffers import Buffers
from _common.collectives import Collectives


class Workload(ABC):
    """A call, or a few, on buffers of one size.

    Attributes
    ----------
    ring_bytes
        Bytes a rank sends if the algorithm is bandwidth-optimal and exact.
    formula
        The formula of `ring_bytes`, for people.
    messages
        How many of what is reported one `run` makes, one after the other; times are divided by it.
    sends
        How many of them a rank sends.
    """

    ring_bytes: int = 0
    formula: str = "0"
    messages: int = 1
    sends: int = 1

    def prepare(self) -> None:  # noqa: B027 - most calls overwrite nothing that they need again
        """Restore what a call overwrites."""

    @abstractmethod
    def run(self, calls: Collectives) -> None:
        """Make the call, and wait until its result is there."""

    def error(self) -> float | None:
        """Relative error of the last result; None where there is nothing to compare."""
        return None


# Makes the workload of a message size in bytes, in elements of the buffers' dtype.
MakeWorkload = Callable[[int, Buffers], Workload]


@dataclass(frozen=True)
class Kind:
    """A family of OSU's programs.

    Attributes
    ----------
    test
        What its header calls the test.
    column
        Heading of the figure.
    bandwidth
        The figure is megabytes a second instead of microseconds.
    sized
        There are messages, of a size each.
    pair
        Two ranks are needed, and rank 0's clock counts.
    """

    test: str = "Latency Test"
    column: str = "Avg Latency(us)"
    bandwidth: bool = False
    sized: bool = True
    pair: bool = False


COLLECTIVE = Kind()
UNSIZED = Kind(sized=False)
PAIR_LATENCY = Kind(pair=True)
PAIR_BANDWIDTH = Kind("Bandwidth Test", "Bandwidth (MB/s)", bandwidth=True, pair=True)
