"""What trains on a data-parallel group: DDP in its modes, ZeRO, GradScaler."""

from __future__ import annotations

import contextlib
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import agoq_comm
from checks import Checks
from programs.common import equal
from ranks import Rank

checks = Checks()
WIDTH = 192  # A weight of WIDTH * WIDTH elements is above min_numel.
# One all-reduce errs by .0080 and .0084 (2 and 3 ranks) on normal data; gradients of a layer vary
# more within a block.
RELATIVE_ERROR = 0.02


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


def _batch(me: Rank) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole world's batch, and this rank's part of it."""
    x = torch.randn(8 * me.size, WIDTH, generator=torch.Generator().manual_seed(2))
    return x, x[me.rank * 8 : (me.rank + 1) * 8]


def _loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def _exact_gradients(me: Rank, model: nn.Module) -> list[torch.Tensor]:
    reference = copy.deepcopy(model)
    _loss(reference, _batch(me)[0]).backward()
    return [p.grad for p in reference.parameters()]


def _near(actual: torch.Tensor, exact: torch.Tensor, limit: float = RELATIVE_ERROR) -> None:
    error = float((actual - exact).norm() / exact.norm())
    assert error < limit, error


def _equal_on_all_ranks(me: Rank, tensors: list[torch.Tensor]) -> None:
    for x in tensors:
        everyone = [torch.empty_like(x) for _ in range(me.size)]
        dist.all_gather(everyone, x.detach())
        for other in everyone:
            equal(other, everyone[0])


def _check_gradients(me: Rank, model: nn.Module, exact: list[torch.Tensor]) -> None:
    gradients = [p.grad for p in model.parameters()]
    for gradient, right in zip(gradients, exact, strict=True):
        _near(gradient, right)
    _equal_on_all_ranks(me, gradients)


@contextlib.contextmanager
def _quantizes():
    """The default group quantizes at least one all_reduce meanwhile."""
    before = agoq_comm.stats().get("all_reduce", {"quantized_calls": 0})["quantized_calls"]
    yield
    assert agoq_comm.stats()["all_reduce"]["quantized_calls"] > before


@checks
def ddp(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = DistributedDataParallel(model)
    with _quantizes():
        for _ in range(3):
            parallel.zero_grad()
            _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)


@checks
def ddp_static_graph(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = DistributedDataParallel(model, static_graph=True)
    for _ in range(3):
        parallel.zero_grad()
        _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)


@checks
def ddp_gradient_as_bucket_view(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)


@checks
def ddp_no_sync(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = DistributedDataParallel(model)
    x = _batch(me)[1]
    with parallel.no_sync():
        (_loss(parallel, x[:4]) / 2).backward()
    (_loss(parallel, x[4:]) / 2).backward()
    _check_gradients(me, model, exact)


@checks
def ddp_join(me: Rank) -> None:
    """Rank r makes 2 + r steps; a rank that has joined counts as a gradient of zero."""
    model, reference, start = _model(), _model(), _model()
    rate = 0.1
    batch = _batch(me)[0].split(8)
    exact = []
    for step in range(1 + me.size):
        reference.zero_grad()
        for rank in range(me.size):
            if step < 2 + rank:
                (_loss(reference, batch[rank]) / me.size).backward()
        exact.append([p.grad.clone() for p in reference.parameters()])
        with torch.no_grad():
            for p in reference.parameters():
                p -= rate * p.grad
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), rate)
    with parallel.join(), _quantizes():
        for step in range(2 + me.rank):
            optimizer.zero_grad()
            _loss(parallel, batch[me.rank]).backward()
            for p, right in zip(model.parameters(), exact[step], strict=True):
                _near(p.grad, right)
            optimizer.step()
    parameters = zip(*(m.parameters() for m in (model, reference, start)), strict=True)
    for actual, right, first in parameters:
        _near(actual.detach() - first, right.detach() - first)
    _equal_on_all_ranks(me, list(model.parameters()))


@checks
def ddp_find_unused_parameters(me: Rank) -> None:
    model = _model()
    model.add_module("unused", nn.Linear(WIDTH, WIDTH))
    used = nn.Sequential(model[0], model[1], model[2])

    class Partial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x):
            return self.inner[2](self.inner[1](self.inner[0](x)))

    exact = _exact_gradients(me, used)
    parallel = DistributedDataParallel(Partial(), find_unused_parameters=True)
    _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, used, exact)


def _bfloat16_hook(group, bucket):  # DDP cannot read annotations that are strings.
    """What default_hooks.bf16_compress_hook does; DDP refuses that very name without NCCL."""
    return default_hooks._compress_hook(torch.bfloat16, group, bucket)


@checks
def ddp_bf16_and_fp16_hooks(me: Rank) -> None:
    for hook in (_bfloat16_hook, default_hooks.fp16_compress_hook):
        model = _model()
        exact = _exact_gradients(me, model)
        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(None, hook)
        with _quantizes():
            _loss(parallel, _batch(me)[1]).backward()
        _check_gradients(me, model, exact)


@checks
def ddp_allreduce_hooks(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(dist.group.WORLD, default_hooks.allreduce_hook)
    _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)
    model = _model()
    parallel = DistributedDataParallel(model)
    parallel._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)


@checks
def ddp_on_a_group_of_its_own(me: Rank) -> None:
    group = dist.new_group(pg_options=agoq_comm.Options(block=32))
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = DistributedDataParallel(model, process_group=group)
    _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)
    assert agoq_comm.stats(group)["all_reduce"]["quantized_calls"] >= 1


@checks
def training_stays_near_exact_training(me: Rank) -> None:
    """30 steps of SGD with momentum: the loss ends within 0.5 % of an exact run's."""
    teacher = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3)) / WIDTH**0.5
    x, mine = _batch(me)
    losses = {}
    for kind in ("exact", "agoq"):
        model = _model()
        wrapped = DistributedDataParallel(model) if kind == "agoq" else model
        optimizer = torch.optim.SGD(wrapped.parameters(), 0.5, momentum=0.9)
        inputs = mine if kind == "agoq" else x
        for _ in range(30):
            optimizer.zero_grad()
            (wrapped(inputs) - inputs @ teacher).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            losses[kind] = float((model(x) - x @ teacher).square().mean())
        if kind == "agoq":
            _equal_on_all_ranks(me, list(model.parameters()))
    assert abs(losses["agoq"] / losses["exact"] - 1) < 0.005, losses


@checks
def zero_redundancy_optimizer(me: Rank) -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, plain = _model(), _model()
    first = DistributedDataParallel(model)
    second = DistributedDataParallel(plain)
    sharded = ZeroRedundancyOptimizer(first.parameters(), torch.optim.Adam, lr=0.01)
    ordinary = torch.optim.Adam(second.parameters(), lr=0.01)
    for _ in range(3):
        for parallel, optimizer in ((first, sharded), (second, ordinary)):
            optimizer.zero_grad()
            _loss(parallel, _batch(me)[1]).backward()
            optimizer.step()
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        equal(a.data, b.data)
    _equal_on_all_ranks(me, list(model.parameters()))
    sharded.consolidate_state_dict(0)
    assert me.rank != 0 or len(sharded.state_dict()["state"]) == 4


@checks
def grad_scaler_skips_on_all_ranks_when_one_overflows(me: Rank) -> None:
    model = _model()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    before = [p.detach().clone() for p in model.parameters()]
    x = _batch(me)[1].clone()
    if me.rank == me.size - 1:
        x[0, 0] = float("inf")
    scaler.scale(_loss(parallel, x)).backward()
    scaler.step(optimizer)
    scaler.update()
    for p, old in zip(model.parameters(), before, strict=True):
        equal(p.data, old)
    assert scaler.get_scale() == 4.0
    optimizer.zero_grad()
    scaler.scale(_loss(parallel, _batch(me)[1])).backward()
    scaler.step(optimizer)
    assert any(not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    _equal_on_all_ranks(me, list(model.parameters()))


@checks
def compiled_ddp(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    parallel = torch.compile(DistributedDataParallel(model), backend="aot_eager")
    _loss(parallel, _batch(me)[1]).backward()
    _check_gradients(me, model, exact)
