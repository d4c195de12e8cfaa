"""What the optimizers around encoded gradients do: steps, clipping, scaling, sharding, memory."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch import nn

from agoq_comm.gradients import (
    ChunkedOptimizer,
    GradientClipping,
    QuantizedGradients,
    ShardedOptimizer,
)
from checks import Checks
from programs.common import equal, refused
from programs.gradients_basic import (
    WIDTH,
    accumulate,
    batches,
    equal_on_all_ranks,
    everyones,
    loss,
    model,
    near,
)
from ranks import Rank

checks = Checks()


def _chunked(net: nn.Module, clipping=None, **keywords) -> ChunkedOptimizer:
    gradients = QuantizedGradients(net, bucket_numel=10_000, **keywords)
    adam = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    return ChunkedOptimizer(adam, gradients, clipping)


def _sharded(net: nn.Module, clipping=None, **keywords) -> ShardedOptimizer:
    gradients = QuantizedGradients(net, result="reduce_scatter", bucket_numel=10_000, **keywords)
    groups = [
        {"params": [net[0].weight, net[2].weight], "weight_decay": 0.1},
        {"params": [net[0].bias, net[2].bias], "weight_decay": 0.0},
    ]
    return ShardedOptimizer(groups, torch.optim.AdamW, gradients, clipping, lr=0.01)


@checks
def a_chunked_step_is_the_optimizers_own_step(me: Rank) -> None:
    net = model()
    chunked = _chunked(net)
    twin = copy.deepcopy(net)
    plain = torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        accumulate(net, chunked.gradients, batches(me.rank))
        chunked.gradients.reduce()
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            q.grad = chunked.gradients.gradient(p)
        chunked.step()
        chunked.zero_grad()
        plain.step()
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            equal(p.detach(), q.detach())
            assert p.grad is None
            equal_on_all_ranks(me, p.detach())


@checks
def clipping_is_that_of_torch(me: Rank) -> None:
    for make in (_chunked, _sharded):
        for limit in (1e-3, 1e3):
            net = model()
            optimizer = make(net, limit)
            accumulate(net, optimizer.gradients, batches(me.rank))
            own = [optimizer.gradients.gradient(p) for p in net.parameters()]
            mean = [sum(everyones(me, g)) / me.size for g in own]
            norm = float(torch.nn.utils.get_total_norm(mean))
            before = [p.detach().clone() for p in net.parameters()]
            assert abs(optimizer.gradient_norm / norm - 1) < 0.01
            clipped = {}
            step = optimizer.optimizer.step

            def spy(step=step, optimizer=optimizer, clipped=clipped):
                for group in optimizer.optimizer.param_groups:
                    for p in group["params"]:
                        if p.grad is not None:
                            clipped[p] = p.grad.clone()
                step()

            optimizer.optimizer.step = spy
            optimizer.step()
            squares = sum(g.double().square().sum() for g in clipped.values())
            if make is _sharded:
                dist.all_reduce(squares)
            expected = min(norm, limit)
            assert abs(float(squares.sqrt()) / expected - 1) < 0.01
            assert any(
                not torch.equal(p, old) for p, old in zip(net.parameters(), before, strict=True)
            )


@checks
def norms_span_the_ranks_that_share_a_model(me: Rank) -> None:
    """Each rank alone in its data-parallel group, all in one tensor-parallel group."""
    alone = [dist.new_group([rank]) for rank in range(me.size)][me.rank]
    net = model(seed=me.rank)
    gradients = QuantizedGradients(net, alone)
    split = {net[0].weight, net[2].weight}
    clipping = GradientClipping(1.0, dist.group.WORLD, lambda p: p in split or me.rank == 0)
    optimizer = ChunkedOptimizer(torch.optim.SGD(net.parameters(), 0.1), gradients, clipping)
    loss(net, batches(me.rank)[0]).backward()
    counted = [
        gradients.gradient(p).double().square().sum()
        for p in net.parameters()
        if p in split or me.rank == 0
    ]
    squares = sum(counted)
    dist.all_reduce(squares)
    assert abs(optimizer.gradient_norm / float(squares.sqrt()) - 1) < 1e-6


@checks
def sharded_steps_use_the_sum_itself(me: Rank) -> None:
    """Encoded once on the way: the optimizer sees fp32 sums of the stored pieces."""
    net = model()
    optimizer = _sharded(net)
    twin = copy.deepcopy(net)
    plain = torch.optim.AdamW(
        [
            {"params": [twin[0].weight, twin[2].weight], "weight_decay": 0.1},
            {"params": [twin[0].bias, twin[2].bias], "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    factor = torch.tensor(1.0 / me.size)
    for _ in range(3):
        with optimizer.gradients.no_sync():
            accumulate(net, optimizer.gradients, batches(me.rank))
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            total = None
            for piece in everyones(me, optimizer.gradients.gradient(p)):
                total = piece if total is None else total + piece
            q.grad = total * factor
        optimizer.step()
        optimizer.zero_grad()
        plain.step()
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            equal(p.detach(), q.detach())
            equal_on_all_ranks(me, p.detach())
    state = sum(
        x.numel() for s in optimizer.optimizer.state.values() for x in s.values() if x.dim()
    )
    total_numel = sum(p.numel() for p in net.parameters())
    assert state <= 2 * (total_numel / me.size + 3 * 128 * len(optimizer.gradients.buckets))


@checks
def grad_scaler_skips_on_all_ranks_when_one_overflows(me: Rank) -> None:
    for make in (_chunked, _sharded):
        net = model()
        optimizer = make(net, 1.0)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        before = [p.detach().clone() for p in net.parameters()]
        x = batches(me.rank)[0].clone()
        if me.rank == me.size - 1:
            x[0, 0] = float("inf")
        scaler.scale(loss(net, x)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert scaler.get_scale() == 512.0
        for p, old in zip(net.parameters(), before, strict=True):
            equal(p.detach(), old)

        twin = copy.deepcopy(net)
        unscaled = make(twin, 1.0)
        scaler.scale(loss(net, batches(me.rank)[0])).backward()
        scaler.unscale_(optimizer)
        norm = optimizer.gradient_norm
        scaler.step(optimizer)
        scaler.update()
        loss(twin, batches(me.rank)[0]).backward()
        assert abs(norm / unscaled.gradient_norm - 1) < 1e-6
        unscaled.step()
        # Scaling by a power of two changes no code and no scale but for its exponent.
        for p, q in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-7)
            equal_on_all_ranks(me, p.detach())


@checks
def a_norm_is_that_of_its_step(me: Rank) -> None:
    """Whoever zeroes the gradients; a scaler's factor ends with its step too."""
    for make in (_chunked, _sharded):
        net = model()
        optimizer = make(net, 1e-3)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        norms = []
        for times in (1.0, 64.0):
            scaler.scale(times * loss(net, batches(me.rank)[0])).backward()
            scaler.unscale_(optimizer)
            norms.append(optimizer.gradient_norm)
            scaler.update()
            optimizer.gradients.zero_grad()
        assert abs(norms[1] / norms[0] / 64 - 1) < 1e-6, norms


@checks
def scaled_sums_need_not_fit_in_fp16(me: Rank) -> None:
    """Each micro-batch's gradient does, and so does the gradient that is left without the scale."""
    for sharded in (False, True):
        net = nn.Linear(WIDTH, WIDTH, bias=False).half()
        before = net.weight.detach().clone()
        if sharded:
            gradients = QuantizedGradients(net, result="reduce_scatter")
            optimizer = ShardedOptimizer(net.parameters(), torch.optim.SGD, gradients, lr=0.5)
        else:
            gradients = QuantizedGradients(net)
            optimizer = ChunkedOptimizer(torch.optim.SGD(net.parameters(), 0.5), gradients)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
        with gradients.no_sync():
            for _ in range(2):
                scaler.scale(0.75 * net.weight.float().sum()).backward()
        scaler.step(optimizer)
        # Steps of the codes and of fp16.
        torch.testing.assert_close(net.weight, before - 0.75, rtol=0, atol=0.01)


@checks
def sharded_parameters_may_be_named(me: Rank) -> None:
    nets = []
    for named in (False, True):
        net = model()
        gradients = QuantizedGradients(net, result="reduce_scatter")
        parameters = net.named_parameters() if named else net.parameters()
        optimizer = ShardedOptimizer(parameters, torch.optim.SGD, gradients, lr=0.1)
        loss(net, batches(me.rank)[0]).backward()
        optimizer.step()
        nets.append(net)
    for p, q in zip(*(net.parameters() for net in nets), strict=True):
        equal(p.detach(), q.detach())


@checks
def shards_follow_parameters_whose_memory_is_replaced(me: Rank) -> None:
    net = model()
    optimizer = _sharded(net)
    for p in net.parameters():
        p.data = p.data + 1
    before = [p.detach().clone() for p in net.parameters()]
    loss(net, batches(me.rank)[0]).backward()
    optimizer.step()
    for p, old in zip(net.parameters(), before, strict=True):
        torch.testing.assert_close(p, old, rtol=0, atol=0.05)  # A few steps of 0.01 and no more.
        assert not torch.equal(p, old)


@checks
def training_stays_near_exact_training(me: Rank) -> None:
    """30 steps of four micro-batches: the loss ends within 0.5 % of an exact run's."""
    torch.manual_seed(4)
    teacher = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    pool = [x for rank in range(me.size) for x in batches(rank)]

    def objective(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return (net(x) - x @ teacher).square().mean()

    ends = {}
    for kind in ("exact", "chunked", "sharded"):
        net = model()
        settings = {"lr": 0.5, "momentum": 0.9}
        if kind == "exact":
            optimizer = torch.optim.SGD(net.parameters(), **settings)
        elif kind == "chunked":
            gradients = QuantizedGradients(net)
            sgd = torch.optim.SGD(net.parameters(), **settings)
            optimizer = ChunkedOptimizer(sgd, gradients)
        else:
            gradients = QuantizedGradients(net, result="reduce_scatter")
            optimizer = ShardedOptimizer(net.parameters(), torch.optim.SGD, gradients, **settings)
        for _ in range(30):
            if kind == "exact":
                (sum(objective(net, x) for x in pool) / len(pool)).backward()
            else:
                with gradients.no_sync():
                    for x in batches(me.rank):
                        (objective(net, x) / len(batches(me.rank))).backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            ends[kind] = float(sum(objective(net, x) for x in pool))
    assert abs(ends["chunked"] / ends["exact"] - 1) < 0.005, ends
    assert abs(ends["sharded"] / ends["exact"] - 1) < 0.005, ends


@checks
def a_compiled_model_trains_alike(me: Rank) -> None:
    net = model()
    gradients = QuantizedGradients(net)
    compiled = torch.compile(net, backend="aot_eager")
    loss(compiled, batches(me.rank)[0]).backward()
    own = [gradients.gradient(p, torch.float32) for p in net.parameters()]
    gradients.reduce()
    for p, mine in zip(net.parameters(), own, strict=True):
        near(gradients.gradient(p), sum(everyones(me, mine)) / me.size)


@checks
def mistakes_are_named(me: Rank) -> None:
    net = model()
    whole = QuantizedGradients(net)
    parts = QuantizedGradients(net, result="reduce_scatter")
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    other = nn.Linear(2, 2)
    frozen = nn.Linear(2, 2).requires_grad_(False)
    both = torch.optim.SGD([*net.parameters(), *frozen.parameters()], 0.1)
    thawed = ChunkedOptimizer(both, whole)
    frozen.requires_grad_(True)
    gloo = dist.new_group(backend="gloo")
    dist.barrier(gloo)  # A rank that went on alone would take its connections with it.
    cases = (
        (lambda: ChunkedOptimizer(sgd, parts), 'result="all_reduce"'),
        (
            lambda: ShardedOptimizer(net.parameters(), torch.optim.SGD, whole, lr=0.1),
            'result="reduce_scatter"',
        ),
        (
            lambda: ChunkedOptimizer(torch.optim.SGD(other.parameters(), 0.1), whole),
            "has a parameter that the gradients were not made for",
        ),
        (
            lambda: ShardedOptimizer(other.parameters(), torch.optim.SGD, parts, lr=0.1),
            "a parameter that the gradients were not made for",
        ),
        (lambda: thawed.step(), "has a parameter that the gradients were not made for"),
        (lambda: QuantizedGradients(net, result="sum"), "must be one of"),
        (lambda: QuantizedGradients(nn.Linear(2, 2).double()), "float64"),
        (lambda: whole.gradient(other.weight), "none of those the gradients were made for"),
        (lambda: list(parts.shards(parts.buckets[0])), "call reduce() first"),
        (lambda: QuantizedGradients(net, gloo), "not 'agoq'"),
    )
    for call, words in cases:
        with refused(words):
            call()
