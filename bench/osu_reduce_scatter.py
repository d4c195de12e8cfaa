"""OSU-style reduce-scatter latency, of one backend or of several in one run.

A message's size is that of the whole input, as in OMB; each rank receives its part of the sum. See
osu_allreduce.py for the usage.
"""

from __future__ import annotations

import sys

import torch.distributed as dist

from _common import command_line, errors
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import Workload


class ReduceScatter(Workload):
    """Sums of random numbers, an equal part to each rank."""

    formula = "(p-1)/p * size"

    def __init__(self, count: int, buffers: Buffers) -> None:
        ranks = dist.get_world_size()
        part = -(-count // ranks)
        self.ring_bytes = (ranks - 1) * part * buffers.dtype.itemsize
        self._source = buffers.random(part * ranks)
        self._truth = errors.exact_sum(self._source)[dist.get_rank() * part :][:part]
        self._result = buffers.empty(part)

    def prepare(self) -> None:
        """Forget the last result, so that a call that does nothing is noticed."""
        self._result.zero_()

    def run(self, calls: Collectives) -> None:
        """Reduce and scatter."""
        calls.reduce_scatter(self._result, self._source)

    def error(self) -> float:
        """Compare with the sum in fp64."""
        return errors.relative_error(self._result, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("Reduce-scatter latency", default_sizes="4:1M")
    return run_program("Reduce_scatter", "reduce_scatter", ReduceScatter, settings)


if __name__ == "__main__":
    sys.exit(main())
