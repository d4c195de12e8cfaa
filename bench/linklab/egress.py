"""Counts what leaves a host's interface, from inside a rank, by contender."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist

from linklab import formulas
from linklab.topology import INTERFACE

_STATISTICS = Path(f"/sys/class/net/{INTERFACE}/statistics")


def counters() -> tuple[int, int]:
    """Bytes and frames that have left this host; zeros where it has no link."""
    if not _STATISTICS.exists():
        return (0, 0)
    sent = (int((_STATISTICS / f"tx_{what}").read_text()) for what in ("bytes", "packets"))
    return next(sent), next(sent)


class Meter:
    """Payload by contender. Every rank of a host sees the host's own interface."""

    def __init__(self, contenders: int) -> None:
        self._totals = [0] * contenders

    def add(self, contender: int, before: tuple[int, int]) -> None:
        """Add what has left since `counters` returned `before`."""
        now = counters()
        self._totals[contender] += formulas.payload(now[0] - before[0], now[1] - before[1])

    def collect(self, ranks_per_host: int) -> list[list[int]]:
        """Return by host, then by contender, what every host's first rank has seen."""
        own = torch.tensor(self._totals, dtype=torch.int64)
        everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, own)
        return [row.tolist() for row in everyone[::ranks_per_host]]
