"""OSU-style all-gather latency, of one backend or of several in one run.

A message's size is that of one rank's part, as in OMB. Contender agoq quantizes here, which the
backend does only where Options(quantize=...) asks for it; exact shows the default. See
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


class AllGather(Workload):
    """Random numbers of every rank."""

    formula = "(p-1) * size"

    def __init__(self, count: int, buffers: Buffers) -> None:
        ranks = dist.get_world_size()
        self.ring_bytes = (ranks - 1) * count * buffers.dtype.itemsize
        self._source = buffers.random(count)
        self._truth = errors.gathered(self._source).view(-1)
        self._result = buffers.empty(ranks * count)

    def prepare(self) -> None:
        """Forget the last result, so that a call that does nothing is noticed."""
        self._result.zero_()

    def run(self, calls: Collectives) -> None:
        """Collect the ranks' numbers."""
        calls.all_gather(self._result, self._source)

    def error(self) -> float:
        """Compare with what the ranks had."""
        return errors.relative_error(self._result, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("All-gather latency", default_sizes="4:1M")
    return run_program("Allgather", "all_gather", AllGather, settings)


if __name__ == "__main__":
    sys.exit(main())
