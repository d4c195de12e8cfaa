"""OSU-style point-to-point bandwidth: a window of messages from rank 0 to rank 1, then one back.

See osu_allreduce.py for the usage. Comparisons state the time a message of the window takes.
"""

from __future__ import annotations

import sys

import torch.distributed as dist

from _common import command_line, errors
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import PAIR_BANDWIDTH, Workload

_WINDOW = 64  # OMB's default


class Window(Workload):
    """Many messages of one buffer at once."""

    formula = "size"
    messages = _WINDOW
    sends = _WINDOW

    def __init__(self, count: int, buffers: Buffers) -> None:
        self.ring_bytes = count * buffers.dtype.itemsize
        self._sends = dist.get_rank() == 0
        self._peer = 1 - dist.get_rank()
        self._values = buffers.random(count)
        self._truth = errors.gathered(self._values)[0]
        self._buffer = buffers.empty(count)
        self._acknowledgement = buffers.empty(1)

    def prepare(self) -> None:
        """Give rank 0 its numbers and rank 1 something else."""
        if self._sends:
            self._buffer.copy_(self._values)
        else:
            self._buffer.zero_()

    def run(self, calls: Collectives) -> None:
        """Send the window; the acknowledgement ends the sender's time."""
        begin = calls.send if self._sends else calls.receive
        for pending in [begin(self._buffer, self._peer) for _ in range(_WINDOW)]:
            pending.wait()
        answer = calls.receive if self._sends else calls.send
        answer(self._acknowledgement, self._peer).wait()

    def error(self) -> float:
        """Compare with rank 0's numbers."""
        return errors.relative_error(self._buffer, self._truth)


def main() -> int:
    """Measure; the exit status is 1 when a validation failed."""
    settings = command_line.parse("Point-to-point bandwidth", default_sizes="1:4M")
    return run_program("Point-to-point", "send", Window, settings, PAIR_BANDWIDTH)


if __name__ == "__main__":
    sys.exit(main())
