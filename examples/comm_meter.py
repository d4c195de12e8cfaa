"""Times DDP's gradient all-reduces, in the same way whatever the backend.

The meter is a DDP communication hook around the very hook that DDP documents as its default
behaviour (divide by the ranks, all-reduce the bucket). It notes when a bucket's all-reduce was
issued and when its future completed, and changes nothing in between.
"""

# No "from __future__ import annotations" here: DDP looks at the hook's annotations.
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

# A moment: host seconds, or an event on a CUDA stream.
Mark = Any


@dataclass(frozen=True)
class CommSummary:
    """What the gradient all-reduces of one run cost.

    Attributes
    ----------
    seconds
        Time in which an all-reduce ran with all ranks present: of each call the shortest duration
        on any rank, which is the one of the rank that came last and so waited for nobody.
    waiting_seconds
        What the average rank spent on top of that, waiting for slower ranks to arrive.
    calls, elements
        All-reduces, and the elements they reduced.
    """

    seconds: float
    waiting_seconds: float
    calls: int
    elements: int


class CommMeter:
    """Notes begin and end of each all-reduce. Register :meth:`hook` with the group as state."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._begins: list[Mark] = []
        self._ends: list[Mark] = []
        self._elements = 0

    def hook(
        self,
        group: dist.ProcessGroup,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        """All-reduce `bucket` as DDP would by itself, and note when."""
        self._elements += bucket.buffer().numel()
        self._begins.append(self._now())
        reduced = default_hooks.allreduce_hook(group, bucket)
        return reduced.then(self._finish)

    def _finish(self, reduced: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        value = reduced.value()
        self._ends.append(self._now())
        return value

    def _now(self) -> Mark:
        if not self._on_cuda:
            return time.perf_counter()
        # Callbacks of a future run on a stream that waits for its result.
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def durations(self) -> list[float]:
        """Seconds of each call; one queued behind another starts when that one ends."""
        origin = self._begins[0]
        begins = [_seconds(origin, mark) for mark in self._begins]
        ends = [_seconds(origin, mark) for mark in self._ends]
        free = 0.0
        result = []
        for begin, end in zip(begins, ends, strict=True):
            result.append(end - max(begin, free))
            free = end
        return result

    def summary(self) -> CommSummary:
        """Compare the ranks. Collective: every rank calls it, after the same number of steps."""
        if self._on_cuda:
            torch.cuda.synchronize()
        own = self.durations()
        everyone: list[list[float]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(everyone, own)
        seconds = sum(min(call) for call in zip(*everyone, strict=True))
        average = sum(map(sum, everyone)) / len(everyone)
        return CommSummary(seconds, average - seconds, len(own), self._elements)


def _seconds(origin: Mark, mark: Mark) -> float:
    if isinstance(origin, torch.cuda.Event):
        return origin.elapsed_time(mark) / 1e3
    return mark - origin
