"""OSU-style broadcast latency, of one backend or of several in one run. See osu_allreduce.py."""

from __future__ import annotations

import sys

import torch.distributed as dist

from _common import command_line, errors
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import Workload

_ROOT = 0


class Broadcast(Workload):
    """Random numbers of rank 0."""

    formula = "size"

    def __init__(self, count: int, buffers: Buffers) -> None:
        self.ring_bytes = count * buffers.dtype.itemsize
        self._values = buffers.random(count)
        self._truth = errors.gathered(self._values)[_ROOT]
        self._buffer = buffers.empty(count)

    def prepare(self) -> None:
        """Give the root its numbers and the others something else."""
        if dist.get_rank() == _ROOT:
            self._buffer.copy_(self._values)
        else:
            self._buffer.zero_()

    def run(self, calls: Collectives) -> None:
        """Broadcast the buffer."""
        calls.broadcast(self._buffer, _ROOT)

    def error(self) -> float:
        """Compare with the root's numbers."""
        return errors.relative_error(self._buffer, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("Broadcast latency", default_sizes="1:1M")
    return run_program("Broadcast", "broadcast", Broadcast, settings)


if __name__ == "__main__":
    sys.exit(main())
