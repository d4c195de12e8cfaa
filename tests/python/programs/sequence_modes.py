"""The split layers in the ways that models use them: autocast, any length, frozen, copied."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import agoq_comm
from agoq_comm import sequence_parallel as sp
from checks import Checks
from programs.common import data, equal
from ranks import Rank

checks = Checks()
ROWS, WIDTH = 90, 128  # Rows of each rank.


class _Block(nn.Module):
    """norm, up, silu, down, norm, up: with a residual, and a bias in each layer."""

    def __init__(self, size: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = nn.Linear(WIDTH, 60 * size)
        self.down = nn.Linear(60 * size, WIDTH)
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x + self.down(F.silu(self.up(F.rms_norm(x, [WIDTH], self.weight, 1e-5))))
        return x, self.down(F.silu(self.up(F.rms_norm(x, [WIDTH], self.weight, 1e-5))))


class _SplitBlock(nn.Module):
    def __init__(self, whole: _Block, **keywords) -> None:
        super().__init__()
        self.up = sp.ColumnParallelLinear(whole.up, **keywords)
        self.down = sp.RowParallelLinear(whole.down)
        self.weight = nn.Parameter(whole.weight.detach().clone())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = sp.copy_to_tensor_model_parallel_region(self.weight, policy=sp.EXACT)
        hidden = F.silu(self.up(sp.rms_norm(x, weight)))
        x, normed = self.down.into_norm(hidden, x, weight)
        return x, self.down(F.silu(self.up(normed)))


def _error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    assert actual.shape == exact.shape
    return float((actual.float() - exact.float()).norm() / exact.float().norm())


def _backward(outputs: tuple[torch.Tensor, ...]) -> None:
    sum(y.float().square().sum() for y in outputs).backward()


@checks
def autocast_is_that_of_whole_layers(me: Rank) -> None:
    whole = _Block(me.size)
    rows = [data(rank, ROWS, 2, WIDTH) for rank in range(me.size)]
    x = torch.cat(rows).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        exact = whole(x)
    _backward(exact)
    mine = slice(me.rank * ROWS, (me.rank + 1) * ROWS)
    for keep in (True, False):
        net = _SplitBlock(whole, keep_encoded=keep)
        own = rows[me.rank].clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = net(own)
        _backward(outputs)
        for y, right in zip(outputs, exact, strict=True):
            assert y.dtype == right.dtype
            assert _error(y, right[mine]) < 0.03
        assert _error(own.grad, x.grad[mine]) < 0.03
        for actual, right in (
            (net.up.weight, whole.up.weight.grad.chunk(me.size)[me.rank]),
            (net.up.bias, whole.up.bias.grad.chunk(me.size)[me.rank]),
            (net.down.weight, whole.down.weight.grad.chunk(me.size, 1)[me.rank]),
            (net.down.bias, whole.down.bias.grad),
            (net.weight, whole.weight.grad),
        ):
            assert _error(actual.grad, right) < 0.03


@checks
def autocast_without_sequence_parallelism(me: Rank) -> None:
    whole = _Block(me.size)
    x = data(0, ROWS, 2, WIDTH)
    up = sp.ColumnParallelLinear(whole.up, sequence_parallel=False)
    down = sp.RowParallelLinear(whole.down, sequence_parallel=False)
    with torch.autocast("cpu", torch.bfloat16):
        y, right = down(F.silu(up(x))), whole.down(F.silu(whole.up(x)))
    assert y.dtype == right.dtype == torch.bfloat16
    assert _error(y, right) < 0.03


@checks
def one_graph_serves_every_length(me: Rank) -> None:
    net = _SplitBlock(_Block(me.size))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net, fullgraph=True, backend=counter, dynamic=True)
    graphs = []
    for rows in (48, 90, 144):
        gradients = []
        for run in (net, compiled):
            x = data(me.rank, rows, 2, WIDTH).requires_grad_()
            _backward(run(x))
            gradients.append(x.grad)
        equal(*gradients)
        graphs.append(counter.frame_count)
    assert graphs[0] == graphs[-1], graphs


@checks
def meta_tensors_have_the_shapes(me: Rank) -> None:
    net = _SplitBlock(_Block(me.size))
    x = data(me.rank, ROWS, 2, WIDTH)
    right = net(x)
    net.to("meta")
    x = x.to("meta").requires_grad_()
    outputs = net(x)
    _backward(outputs)
    assert [y.shape for y in outputs] == [y.shape for y in right]
    assert x.grad.shape == x.shape and x.grad.is_meta


@checks
def what_is_frozen_is_neither_computed_nor_sent(me: Rank) -> None:
    linear = _Block(me.size).up
    right = None
    for wanted in itertools.product((True, False), repeat=3):
        if not any(wanted):
            continue
        for keep, compiled in itertools.product((True, False), repeat=2):
            group = dist.new_group()
            column = sp.ColumnParallelLinear(linear, group, keep_encoded=keep)
            x = data(me.rank, ROWS, 2, WIDTH)
            parts = (x, column.weight, column.bias)
            for part, is_wanted in zip(parts, wanted, strict=True):
                part.requires_grad_(is_wanted)
            if compiled:
                torch._dynamo.reset()
                column.compile(fullgraph=True, backend="aot_eager")
            column(x).square().sum().backward()
            right = right or [part.grad for part in parts]
            for part, exact, is_wanted in zip(parts, right, wanted, strict=True):
                assert (part.grad is not None) == is_wanted
                if is_wanted:
                    equal(part.grad, exact)
            stats = agoq_comm.stats(group)
            wants_x, wants_weight, _ = wanted
            assert stats["all_gather"]["calls"] == 1 + wants_weight
            assert ("reduce_scatter" in stats) == wants_x


@checks
def a_frozen_weight_keeps_no_input(me: Rank) -> None:
    frozen = _Block(me.size).requires_grad_(False)
    column, row = sp.ColumnParallelLinear(frozen.up), sp.RowParallelLinear(frozen.down)
    assert not any(p.requires_grad for p in (*column.parameters(), *row.parameters()))
    y = column(data(me.rank, ROWS, 2, WIDTH).requires_grad_())
    (saved,) = y.grad_fn.saved_tensors
    equal(saved, column.weight.detach())


@checks
def a_copy_has_its_own_parameters_and_the_same_group(me: Rank) -> None:
    net = _SplitBlock(_Block(me.size))
    twin = copy.deepcopy(net)
    x = data(me.rank, ROWS, 2, WIDTH)
    for y, right in zip(twin(x), net(x), strict=True):
        equal(y, right)
    assert twin.up.group is net.up.group and twin.up.weight is not net.up.weight
    assert f"out of {me.size} ranks" in repr(twin)
