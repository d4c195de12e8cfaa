"""OSU-style barrier latency, of one backend or of several in one run. See osu_allreduce.py.

There are no messages, so -m, -T and -c change nothing.
"""

from __future__ import annotations

import sys

from _common import command_line
from _common.buffers import Buffers
from _common.collectives import Collectives
from _common.program import run_program
from _common.workload import UNSIZED, Workload


class Barrier(Workload):
    """A barrier."""

    def __init__(self, count: int, buffers: Buffers) -> None:
        """Need no buffers."""

    def run(self, calls: Collectives) -> None:
        """Wait for all ranks."""
        calls.barrier()


def main() -> int:
    """Measure."""
    settings = command_line.parse("Barrier latency", default_sizes="1")
    return run_program("Barrier", "barrier", Barrier, settings, UNSIZED)


if __name__ == "__main__":
    sys.exit(main())
