"""Times collective calls of several contenders, alternating, all ranks starting together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

# One contender's share of a measurement.
Call = Callable[[], None]


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_alternating(
    calls: Sequence[Call], prepare: Call, device: torch.device, warmup: int, iterations: int
) -> torch.Tensor:
    """Time each call `iterations` times, one contender after the other.

    Parameters
    ----------
    calls
        One for each contender.
    prepare
        Runs before each call, untimed; restores what the call overwrites.
    device
        Where the calls work.
    warmup, iterations
        Rounds without and with a clock. The order of contenders turns with every round, so that
        none always follows the same one.

    Returns
    -------
    torch.Tensor
        Seconds by rank, contender and round, equal on all ranks.
    """
    own = torch.zeros(len(calls), iterations, dtype=torch.float64)
    for turn in range(-warmup, iterations):
        for place in range(len(calls)):
            index = (place + turn) % len(calls)
            prepare()
            _synchronize(device)
            dist.barrier()
            begin = time.perf_counter()
            calls[index]()
            _synchronize(device)
            if turn >= 0:
                own[index, turn] = time.perf_counter() - begin
    everyone = [torch.zeros_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return torch.stack(everyone)
