"""OSU-style all-to-all latency, of one backend or of several in one run.

A message's size is that of the part for one rank, as in OMB. See osu_allreduce.py for the usage.
"""

from __future__ import annotations

import sys

import torch.distributed as dist

from _common import command_line, errors
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import Workload


class AllToAll(Workload):
    """Random numbers, other ones for each rank."""

    formula = "(p-1) * size"

    def __init__(self, count: int, buffers: Buffers) -> None:
        ranks, rank = dist.get_world_size(), dist.get_rank()
        self.ring_bytes = (ranks - 1) * count * buffers.dtype.itemsize
        self._source = buffers.random(ranks * count)
        self._truth = errors.gathered(self._source).view(ranks, ranks, count)[:, rank].reshape(-1)
        self._result = buffers.empty(ranks * count)

    def prepare(self) -> None:
        """Forget the last result, so that a call that does nothing is noticed."""
        self._result.zero_()

    def run(self, calls: Collectives) -> None:
        """Exchange the parts."""
        calls.all_to_all(self._result, self._source)

    def error(self) -> float:
        """Compare with what the ranks had for this one."""
        return errors.relative_error(self._result, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("All-to-all latency", default_sizes="1:1M")
    return run_program("Alltoall", "all_to_all", AllToAll, settings)


if __name__ == "__main__":
    sys.exit(main())
