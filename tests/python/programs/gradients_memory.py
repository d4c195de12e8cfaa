"""What gradients take, counted by the allocator: in steady state and at the peak of a step."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from agoq_comm.gradients import ChunkedOptimizer, QuantizedGradients, ShardedOptimizer
from checks import Checks
from programs.common import data
from ranks import Rank

checks = Checks()
WIDTH, LAYERS = 512, 8
BUCKET = WIDTH * WIDTH


def _model() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


class _MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


_libc = ctypes.CDLL(None)
_libc.mallinfo2.restype = _MallInfo


def _in_use() -> int:
    """Bytes that the process has allocated, on all threads: the allocator's own count."""
    info = _libc.mallinfo2()
    return info.uordblks + info.hblkhd


class _Watch(TorchDispatchMode):
    """Looks at the allocator after each operator: tensors come from nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0

    def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
        result = operator(*arguments, **(keywords or {}))
        self.peak = max(self.peak, _in_use())
        return result


def _allocated(work: Callable[[], object]) -> tuple[int, int]:
    """What `work` leaves allocated, and the most that it had."""
    gc.collect()
    before = _in_use()
    with _Watch() as watch:
        kept = work()
    gc.collect()
    # The group's worker lets go of a call's tensors a moment after it is done.
    dist.barrier()
    held = _in_use() - before
    del kept
    return held, watch.peak - before


def _step(net: nn.Module, me: Rank) -> None:
    net(data(me.rank, 1, WIDTH)).square().mean().backward()


@checks
def the_count_is_right(me: Rank) -> None:
    def work():
        kept = torch.zeros(10_000_000, dtype=torch.uint8)
        torch.zeros(50_000_000, dtype=torch.uint8)
        return kept

    _allocated(work)  # The first time it also loads what it is made of.
    held, peak = _allocated(work)
    assert 10_000_000 <= held <= 10_100_000 and 60_000_000 <= peak <= 60_100_000, (held, peak)


@checks
def steady_state_is_a_quarter_of_fp32(me: Rank) -> None:
    net = _model()
    exact = 4 * sum(p.numel() for p in net.parameters())
    held, _ = _allocated(lambda: _step(net, me))
    assert held >= exact
    net.zero_grad()
    made = []

    def encoded():
        made.append(QuantizedGradients(net, bucket_numel=BUCKET))
        with made[0].no_sync():
            for _ in range(3):
                _step(net, me)

    held, _ = _allocated(encoded)
    assert made[0].nbytes <= held <= 0.26 * exact, (held / exact, made[0].nbytes / exact)


@checks
def the_peak_of_a_step_is_stated(me: Rank) -> None:
    """Beyond what is stored: what is received of two buckets, their sums, and one layer in fp32.

    Buckets that leave during the backward pass are received there: all of them, if the network is
    slower than the pass.
    """
    net = _model()
    exact = 4 * sum(p.numel() for p in net.parameters())
    layer = 4 * WIDTH * (WIDTH + 1)
    for result in ("all_reduce", "reduce_scatter"):
        gradients = QuantizedGradients(net, result=result, bucket_numel=BUCKET)
        bucket = max(b.data.nbytes for b in gradients.buckets)
        if result == "all_reduce":
            optimizer = ChunkedOptimizer(torch.optim.SGD(net.parameters(), 0.1), gradients)
        else:
            optimizer = ShardedOptimizer(net.parameters(), torch.optim.SGD, gradients, lr=0.1)

        def step(overlapped: bool, optimizer=optimizer, gradients=gradients) -> None:
            if overlapped:
                _step(net, me)
            else:
                with gradients.no_sync():
                    _step(net, me)
            optimizer.step()
            optimizer.zero_grad()

        step(True)
        _, calm = _allocated(lambda step=step: step(False))
        _, hurried = _allocated(lambda step=step: step(True))
        slack = 64 * 1024 + LAYERS * WIDTH * 8  # Activations, and objects of a few bytes.
        assert calm <= 4 * bucket + 2 * layer + slack, (calm, bucket, layer)
        assert hurried <= gradients.nbytes + 2 * bucket + 2 * layer + slack
        # The whole, with what is stored: under half of fp32 where only accumulated.
        assert gradients.nbytes + calm - 2 * layer <= 0.45 * exact
        gradients.remove()
