"""QuantizedGradients: what is stored and sent, to the bit, and which parameters it copes with."""

from __future__ import annotations

import contextlib
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import agoq_comm
from agoq_comm import codec
from agoq_comm.gradients import QuantizedGradients
from checks import Checks
from programs.common import data, equal, refused, roundtrip
from ranks import Rank

checks = Checks()
WIDTH = 96
MICRO_BATCHES = 4
# One encoding of normal data errs by .0065; 4 micro-batches and the sum make 5.
RELATIVE_ERROR = 0.02


def model(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 200), nn.ReLU(), nn.Linear(200, WIDTH))


def batches(rank: int, count: int = MICRO_BATCHES) -> list[torch.Tensor]:
    return [data(rank, 8, WIDTH, seed=20 + i) for i in range(count)]


def loss(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x).square().mean()


def accumulate(net: nn.Module, gradients: QuantizedGradients, inputs: list[torch.Tensor]) -> None:
    """All micro-batches of a step; buckets go out during the last one."""
    for i, x in enumerate(inputs):
        last = i == len(inputs) - 1
        with contextlib.nullcontext() if last else gradients.no_sync():
            (loss(net, x) / len(inputs)).backward()


def exact_gradients(me: Rank, net: nn.Module) -> list[torch.Tensor]:
    """Of all ranks and micro-batches."""
    total = sum(loss(net, x) for rank in range(me.size) for x in batches(rank))
    return list(torch.autograd.grad(total / me.size / MICRO_BATCHES, list(net.parameters())))


def near(actual: torch.Tensor, exact: torch.Tensor, limit: float = RELATIVE_ERROR) -> None:
    error = float((actual - exact).norm() / exact.norm())
    assert error < limit, error


def everyones(me: Rank, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.contiguous()
    everyone = [torch.empty_like(x) for _ in range(me.size)]
    dist.all_gather(everyone, x)
    return everyone


def equal_on_all_ranks(me: Rank, x: torch.Tensor) -> None:
    for other in everyones(me, x):
        equal(other, x)


@checks
def each_gradient_is_added_in_fp32_and_encoded(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net)
    expected: list[torch.Tensor] | None = None
    with gradients.no_sync():
        for x in batches(me.rank):
            new = torch.autograd.grad(loss(net, x), list(net.parameters()))
            if expected is not None:
                new = [old + g for old, g in zip(expected, new, strict=True)]
            expected = [roundtrip(g) for g in new]
            loss(net, x).backward()
            assert all(p.grad is None for p in net.parameters())
    assert expected is not None
    for p, right in zip(net.parameters(), expected, strict=True):
        equal(gradients.gradient(p), right)


@checks
def the_sum_is_of_the_stored_pieces_in_rank_order(me: Rank) -> None:
    for bucket_numel in (1, 10_000, 2**23):
        net = model()
        gradients = QuantizedGradients(net, bucket_numel=bucket_numel)
        with gradients.no_sync():
            accumulate(net, gradients, batches(me.rank))
        stored = [gradients.gradient(p) for p in net.parameters()]
        gradients.reduce()
        factor = torch.tensor(1.0 / me.size)
        for p, piece in zip(net.parameters(), stored, strict=True):
            total = None
            for other in everyones(me, piece):
                total = other if total is None else total + other
            equal(gradients.gradient(p), roundtrip(total * factor))
            equal_on_all_ranks(me, gradients.gradient(p))


@checks
def the_result_is_near_the_exact_gradient(me: Rank) -> None:
    net = model()
    exact = exact_gradients(me, net)
    gradients = QuantizedGradients(net)
    for _ in range(2):
        accumulate(net, gradients, batches(me.rank))
        gradients.reduce()
        for p, right in zip(net.parameters(), exact, strict=True):
            near(gradients.gradient(p), right)
        gradients.zero_grad()
    summed = QuantizedGradients(net, average=False)
    gradients.remove()
    accumulate(net, summed, batches(me.rank))
    summed.reduce()
    for p, right in zip(net.parameters(), exact, strict=True):
        near(summed.gradient(p), right * me.size)


@checks
def stored_bytes_are_sent_without_encoding_again(me: Rank) -> None:
    group = dist.new_group()
    net = model()
    gradients = QuantizedGradients(net, group)
    with gradients.no_sync():
        accumulate(net, gradients, batches(me.rank))
    before = [bucket.data.clone() for bucket in gradients.buckets]
    sent = []
    exchange = dist.all_to_all_single

    def spy(output, tensor, **keywords):
        sent.append(tensor.clone())
        return exchange(output, tensor, **keywords)

    owned = sum(len(bucket.layout.of_owner(me.rank)) for bucket in gradients.buckets)
    with (
        mock.patch.object(dist, "all_to_all_single", spy),
        mock.patch.object(codec, "encode") as encode,
        mock.patch.object(codec, "sum_encode", wraps=codec.sum_encode) as sum_encode,
    ):
        gradients.reduce()
    assert not encode.called and sum_encode.call_count == owned
    for stored, bytes_sent in zip(before, sent, strict=True):
        equal(bytes_sent, stored)
    stats = agoq_comm.stats(group)
    nbytes = sum(bucket.data.nbytes for bucket in gradients.buckets)
    assert stats["all_to_all"]["wire_bytes"] == nbytes * (me.size - 1) // me.size
    assert stats["all_gather"]["wire_bytes"] == nbytes * (me.size - 1) // me.size
    assert all(stats[operation]["encode_seconds"] == 0 for operation in stats)


@checks
def buckets_are_sent_while_the_last_backward_runs(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net, bucket_numel=1)
    started = []
    for i, bucket in enumerate(gradients.buckets):
        start = bucket.start

        def spy(i=i, start=start):
            started.append((i, sum(p.grad is not None for p in net.parameters())))
            start()

        bucket.start = spy
    with gradients.no_sync():
        loss(net, batches(me.rank)[0]).backward()
    assert started == []
    loss(net, batches(me.rank)[1]).backward()
    assert [i for i, _ in started] == [0, 1, 2, 3]
    assert all(bucket.is_under_way for bucket in gradients.buckets)
    gradients.reduce()


@checks
def a_gradient_after_its_bucket_left_is_an_error(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net)
    for late in (False, True):
        loss(net, batches(me.rank)[0]).backward()
        if late:
            gradients.reduce()
        with refused("arrived after its bucket was sent", RuntimeError):
            loss(net, batches(me.rank)[1]).backward()
        if not late:
            gradients.reduce()
        for p in net.parameters():
            p.grad = None
        gradients.zero_grad()


@checks
def shared_unused_and_frozen_parameters(me: Rank) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(2)
            self.first = nn.Linear(WIDTH, WIDTH)
            self.second = nn.Linear(WIDTH, WIDTH)
            self.second.weight = self.first.weight
            self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
            self.never = nn.Linear(WIDTH, WIDTH)
            self.sometimes = nn.Linear(WIDTH, WIDTH)
            self.scalar = nn.Parameter(torch.tensor(2.0))
            self.empty = nn.Parameter(torch.zeros(0, 3))

        def forward(self, x: torch.Tensor, use: bool) -> torch.Tensor:
            y = self.scalar * self.frozen(self.second(self.first(x))) + self.empty.sum()
            return self.sometimes(y) if use else y

    net = Odd()
    gradients = QuantizedGradients(net)
    assert len(gradients.parameters) == len([p for p in net.parameters() if p.requires_grad])
    total = sum(net(batches(rank)[0], rank == 0).square().mean() for rank in range(me.size))
    names, trained = zip(
        *((name, p) for name, p in net.named_parameters() if p.requires_grad), strict=True
    )
    right = torch.autograd.grad(total / me.size, trained, allow_unused=True)
    exact = dict(zip(names, right, strict=True))
    for _ in range(2):
        net(batches(me.rank)[0], me.rank == 0).square().mean().backward()
        assert gradients.has_gradient(net.sometimes.weight) == (me.rank == 0)
        gradients.reduce()
        for name, p in net.named_parameters():
            if name.startswith("frozen"):
                continue
            if name.startswith("never"):
                assert exact[name] is None and gradients.gradient(p) is None
            elif p.numel():
                near(gradients.gradient(p), exact[name])
        assert gradients.gradient(net.empty).shape == (0, 3)
        gradients.zero_grad()
    assert net.frozen.weight.grad is None


@checks
def checkpointing_changes_nothing(me: Rank) -> None:
    results = []
    for reentrant in (None, False, True):
        net = model()
        gradients = QuantizedGradients(net)
        with gradients.no_sync():
            for x in batches(me.rank):
                x = x.clone().requires_grad_()
                y = net(x) if reentrant is None else checkpoint(net, x, use_reentrant=reentrant)
                y.square().mean().backward()
        gradients.reduce()
        results.append([gradients.gradient(p) for p in net.parameters()])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            equal(a, b)


@checks
def half_precision_parameters(me: Rank) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        net = nn.Sequential(model().to(dtype), nn.Linear(WIDTH, 4))
        gradients = QuantizedGradients(net)
        assert {bucket.layout.dtype for bucket in gradients.buckets} == {dtype, torch.float32}
        x = batches(me.rank)[0].to(dtype)
        net[1](net[0](x).float()).square().mean().backward()
        own = [gradients.gradient(p, torch.float32) for p in net.parameters()]
        gradients.reduce()
        for p, mine in zip(net.parameters(), own, strict=True):
            mean = sum(everyones(me, mine)) / me.size
            reduced = gradients.gradient(p)
            assert reduced.dtype == p.dtype
            near(reduced.float(), mean, 0.01)
            equal_on_all_ranks(me, reduced)


@checks
def an_overflow_is_seen_by_all_ranks(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net, error_feedback=True)
    x = batches(me.rank)[0].clone()
    if me.rank == me.size - 1:
        x[0, 0] = float("inf")
    loss(net, x).backward()
    gradients.reduce()
    assert bool(gradients.gradient(net[0].weight).isnan().any())
    gradients.zero_grad()
    loss(net, batches(me.rank)[0]).backward()
    gradients.reduce()
    for p in net.parameters():
        assert bool(gradients.gradient(p).isfinite().all())


@checks
def a_step_can_be_saved_half_way(me: Rank) -> None:
    for feedback in (False, True):
        results = []
        for interrupted in (False, True):
            net = model()
            gradients = QuantizedGradients(net, error_feedback=feedback)
            for i, x in enumerate(batches(me.rank)):
                with gradients.no_sync():
                    loss(net, x).backward()
                if interrupted and i == 1:
                    state = gradients.state_dict()
                    gradients.remove()
                    net = model()
                    gradients = QuantizedGradients(net, error_feedback=feedback)
                    gradients.load_state_dict(state)
            gradients.reduce()
            results.append([gradients.gradient(p) for p in net.parameters()])
        for a, b in zip(*results, strict=True):
            equal(a, b)
    # Of another model, and without the memory that the saved ones have.
    for other in (QuantizedGradients(nn.Linear(3, 3)), QuantizedGradients(model())):
        with refused("the saved gradients are of", ValueError):
            other.load_state_dict(state)


@checks
def a_parameter_that_is_thawed_later_is_an_error(me: Rank) -> None:
    net = model()
    net[0].requires_grad_(False)
    gradients = QuantizedGradients(net)
    net[0].requires_grad_(True)
    loss(net, batches(me.rank)[0]).backward()
    with refused("was frozen when these gradients were made", RuntimeError):
        gradients.reduce()
    net[0].requires_grad_(False)
    gradients.reduce()


@checks
def a_reduction_that_failed_says_so_when_it_is_tried_again(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net, bucket_numel=1)
    accumulate(net, gradients, batches(me.rank))
    # On all ranks after the same calls, so that none waits for another.
    with (
        mock.patch.object(gradients.buckets[1], "start_result", side_effect=OSError("lost")),
        contextlib.suppress(OSError),
    ):
        gradients.reduce()
    with refused("an earlier reduce() of this step failed", RuntimeError):
        gradients.reduce()


@checks
def two_of_the_same_parameters_are_an_error(me: Rank) -> None:
    net = model()
    first, second = QuantizedGradients(net), QuantizedGradients(net)
    with refused("another QuantizedGradients of the same parameters", RuntimeError):
        loss(net, batches(me.rank)[0]).backward()
    first.remove()
    with second.no_sync():
        loss(net, batches(me.rank)[0]).backward()
    assert all(second.has_gradient(p) for p in net.parameters())


@checks
def without_hooks_gradients_stay(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net)
    gradients.remove()
    loss(net, batches(me.rank)[0]).backward()
    assert all(p.grad is not None for p in net.parameters())
    assert not any(gradients.has_gradient(p) for p in net.parameters())
