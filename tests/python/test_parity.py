"""Threads and processes, and every transport and segment length, give the same bits."""

from __future__ import annotations

import functools

import pytest
import torch

import agoq_comm
import threads
from programs import parity
from ranks import launch, values

TRANSPORTS = ("auto", "gloo", "tcp", "shm")


@functools.cache
def _inproc(size: int, rounding: str) -> list[dict[str, list[str]]]:
    def rank(comm: agoq_comm.Communicator) -> dict[str, list[str]]:
        seen = {}
        for name, x, parts in parity.cases(comm.rank, comm.size):
            # In the order of the processes: stochastic rounding counts the calls.
            everything = torch.cat(list(comm.all_gather(x)))
            reduced, own = comm.all_reduce(x), comm.reduce_scatter(parts)
            seen[name] = [parity.digest(result) for result in (reduced, own, everything)]
        return seen

    return threads.run(size, rank, parity.options(rounding))


@pytest.mark.parametrize("segment_numel", [4096, 65536])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("size", [2, 3])
def test_processes_equal_threads(
    size: int, rounding: str, transport: str, segment_numel: int
) -> None:
    outcomes = launch(
        parity.backend,
        size,
        transport=transport,
        segment_numel=segment_numel,
        rounding=rounding,
        timeout=60,
    )
    assert values(outcomes) == _inproc(size, rounding)


@pytest.mark.parametrize("size", [2, 3])
def test_all_reduce_is_equal_on_all_ranks(size: int) -> None:
    first, *others = [{k: v[0] for k, v in rank.items()} for rank in _inproc(size, "nearest")]
    assert all(other == first for other in others)
