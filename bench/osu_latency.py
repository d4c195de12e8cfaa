"""OSU-style point-to-point latency between two ranks: half the time of a message there and back.

See osu_allreduce.py for the usage.
"""

from __future__ import annotations

import sys

import torch.distributed as dist

from _common import command_line, errors
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import PAIR_LATENCY, Workload

# After the barrier before each timed call the first message finds the peer asleep; several dilute
# that, as OMB's loop without barriers does.
_ROUND_TRIPS = 10


class PingPong(Workload):
    """Rank 0's numbers go to rank 1, and from there back."""

    formula = "size"
    messages = 2 * _ROUND_TRIPS
    sends = _ROUND_TRIPS

    def __init__(self, count: int, buffers: Buffers) -> None:
        self.ring_bytes = count * buffers.dtype.itemsize
        self._first = dist.get_rank() == 0
        self._peer = 1 - dist.get_rank()
        self._values = buffers.random(count)
        self._truth = errors.gathered(self._values)[0]
        self._buffer = buffers.empty(count)

    def prepare(self) -> None:
        """Give rank 0 its numbers and rank 1 something else."""
        if self._first:
            self._buffer.copy_(self._values)
        else:
            self._buffer.zero_()

    def run(self, calls: Collectives) -> None:
        """Send there and back."""
        for _ in range(_ROUND_TRIPS):
            if self._first:
                calls.send(self._buffer, self._peer).wait()
            calls.receive(self._buffer, self._peer).wait()
            if not self._first:
                calls.send(self._buffer, self._peer).wait()

    def error(self) -> float:
        """Compare with rank 0's numbers."""
        return errors.relative_error(self._buffer, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("Point-to-point latency", default_sizes="1:4M")
    return run_program("Point-to-point", "send", PingPong, settings, PAIR_LATENCY)


if __name__ == "__main__":
    sys.exit(main())
