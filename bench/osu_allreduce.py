"""OSU-style all-reduce latency, of one backend or of several in one run.

Usage::

    torchrun --standalone --nproc-per-node 2 bench/osu_allreduce.py -m 4K:64M --backend agoq -f
    torchrun --standalone --nproc-per-node 2 bench/osu_allreduce.py --vs gloo,agoq --json out.json
"""

from __future__ import annotations

import sys

import torch.distributed as dist

from _common import command_line, errors
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import Workload


class AllReduce(Workload):
    """Sums of random numbers, in place."""

    formula = "2(p-1)/p * size"

    def __init__(self, count: int, buffers: Buffers) -> None:
        ranks = dist.get_world_size()
        self.ring_bytes = 2 * (ranks - 1) * count * buffers.dtype.itemsize // ranks
        self._values = buffers.random(count)
        self._truth = errors.exact_sum(self._values)
        self._buffer = buffers.empty(count)

    def prepare(self) -> None:
        """Start from the same numbers: sums of sums would overflow."""
        self._buffer.copy_(self._values)

    def run(self, calls: Collectives) -> None:
        """All-reduce the buffer."""
        calls.all_reduce(self._buffer)

    def error(self) -> float:
        """Compare with the sum in fp64."""
        return errors.relative_error(self._buffer, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("All-reduce latency", default_sizes="4:1M")
    return run_program("Allreduce", "all_reduce", AllReduce, settings)


if __name__ == "__main__":
    sys.exit(main())
