"""The split linear layers, what they keep and overlap, and torch's own tensor-parallel styles."""

from __future__ import annotations

import contextlib
import functools
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import agoq_comm
from agoq_comm import sequence_parallel as sp
from agoq_comm.sequence_parallel import exchange
from agoq_comm.sequence_parallel.row_blocks import RowBlocks
from checks import Checks
from programs import row_oracle
from programs.common import data, equal, refused
from ranks import Rank

checks = Checks()
ROWS = 90  # Of each rank.
EVERYTHING = ("all_reduce", "reduce_scatter", "all_gather")


@functools.cache
def _all_quantized() -> dist.ProcessGroup:
    return dist.new_group(pg_options=agoq_comm.Options(quantize=EVERYTHING))


class _Mlp(nn.Module):
    """norm, up, silu, down: the block that sequence parallelism is made for."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.norm = nn.RMSNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.up(self.norm(x))))


def _split(whole: _Mlp, group: dist.ProcessGroup | None, **keywords) -> nn.Module:
    down = {k: v for k, v in keywords.items() if k != "keep_encoded"}
    return nn.Sequential(
        sp.ColumnParallelLinear(whole.up, group, **keywords),
        nn.SiLU(),
        sp.RowParallelLinear(whole.down, group, **down),
    )


def _exact(me: Rank, whole: _Mlp, width: int) -> dict[str, torch.Tensor]:
    """Output and gradients of the layers on one rank, which sees the whole sequence."""
    x = torch.cat([data(rank, ROWS, 2, width) for rank in range(me.size)]).requires_grad_()
    y = whole.down(F.silu(whole.up(x)))
    y.backward(torch.cat([data(rank, ROWS, 2, width, seed=1) for rank in range(me.size)]))
    mine = slice(me.rank * ROWS, (me.rank + 1) * ROWS)
    return {"y": y.detach()[mine], "x": x.grad[mine]} | {
        name: p.grad for name, p in whole.named_parameters() if p.grad is not None
    }


def _run(me: Rank, net: nn.Module, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = data(me.rank, ROWS, 2, width).requires_grad_()
    y = net(x)
    y.backward(data(me.rank, ROWS, 2, width, seed=1))
    return y.detach(), x.grad


def _parts(me: Rank, net: nn.Module, exact: dict[str, torch.Tensor]):
    """(actual, exact) gradients of this rank's parts of the parameters."""
    column, row = net[0], net[2]
    yield column.weight.grad, exact["up.weight"].chunk(me.size)[me.rank]
    yield column.bias.grad, exact["up.bias"].chunk(me.size)[me.rank]
    yield row.weight.grad, exact["down.weight"].chunk(me.size, 1)[me.rank]
    yield row.bias.grad, exact["down.bias"]


def _error(actual: torch.Tensor, exact: torch.Tensor) -> float:
    assert actual.shape == exact.shape
    return float((actual - exact).norm() / exact.norm())


@checks
def layers_compute_what_whole_ones_do(me: Rank) -> None:
    for group in (None, _all_quantized()):
        for width in (128, 200):
            for policy in (sp.EXACT, sp.QuantizationPolicy()):
                for keep in (True, False):
                    whole = _Mlp(width, 60 * me.size)
                    exact = _exact(me, whole, width)
                    net = _split(whole, group, policy=policy, keep_encoded=keep)
                    y, grad = _run(me, net, width)
                    limit = 1e-5 if policy == sp.EXACT else 0.03
                    assert _error(y, exact["y"]) < limit
                    assert _error(grad, exact["x"]) < limit
                    for actual, right in _parts(me, net, exact):
                        assert _error(actual, right) < limit


@checks
def layers_without_sequence_parallelism(me: Rank) -> None:
    width = 128
    for policy, limit in ((sp.EXACT, 1e-5), (sp.QuantizationPolicy(), 0.03)):
        whole = _Mlp(width, 60 * me.size)
        net = _split(whole, None, policy=policy, sequence_parallel=False)
        x = data(0, ROWS, 2, width).requires_grad_()
        y = net(x)
        y.square().mean().backward()
        twin = data(0, ROWS, 2, width).requires_grad_()
        z = whole.down(F.silu(whole.up(twin)))
        z.square().mean().backward()
        assert _error(y, z) < limit and _error(x.grad, twin.grad) < limit
        exact = {name: p.grad for name, p in whole.named_parameters() if p.grad is not None}
        for actual, right in _parts(me, net, exact):
            assert _error(actual, right) < limit


@checks
def the_kept_input_is_sent_again_as_it_is(me: Rank) -> None:
    """One encoding serves the gather, the store and the gather of the backward pass."""
    for width in (128, 200):
        group = dist.new_group()
        column = sp.ColumnParallelLinear(_Mlp(width, 60 * me.size).up, group)
        x = data(me.rank, ROWS, 2, width).requires_grad_()
        sent, gather = [], exchange.start_gather_encoded

        def spy(bytes_, *rest, sent=sent, gather=gather, **keywords):
            sent.append(bytes_)
            return gather(bytes_, *rest, **keywords)

        with (
            mock.patch.object(exchange, "start_gather_encoded", spy),
            mock.patch.object(exchange, "encode", wraps=exchange.encode) as encode,
        ):
            y = column(x)
            assert encode.call_count == 1
            saved = [t for t in y.grad_fn.saved_tensors if t.dtype == torch.uint8]
            grad = data(me.rank, *y.shape, seed=1)
            y.backward(grad)
            assert encode.call_count == 1
        assert [t.data_ptr() for t in sent] == [saved[0].data_ptr()] * 2
        equal(saved[0], RowBlocks(width).encode(x.detach().view(-1, width)))
        stats = agoq_comm.stats(group)["all_gather"]
        rows = ROWS * 2
        assert stats["quantized_calls"] == stats["calls"] == 2
        assert stats["wire_bytes"] == 2 * (me.size - 1) * RowBlocks(width).encoded_bytes(rows)
        # The weight's gradient is that of the very input that went through the product.
        whole = row_oracle.gathered([data(rank, ROWS, 2, width) for rank in range(me.size)]).view(
            -1, width
        )
        equal(column.weight.grad, grad.view(-1, grad.shape[-1]).t() @ whole)


@checks
def what_is_kept_is_a_quarter_of_fp32(me: Rank) -> None:
    column = sp.ColumnParallelLinear(_Mlp(128, 60 * me.size).up)
    x = data(me.rank, ROWS, 2, 128).requires_grad_()
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        column(x)
    inputs = [t for t in saved if t.data_ptr() != column.weight.data_ptr()]
    assert len(inputs) == 1 and inputs[0].nbytes <= 0.26 * x.nbytes


@checks
def collectives_of_the_backward_pass_run_beside_the_products(me: Rank) -> None:
    for group, gather in (
        (dist.new_group(), "start_gather_encoded"),
        (_all_quantized(), "start_gather"),
    ):
        keep = gather == "start_gather_encoded"
        column = sp.ColumnParallelLinear(_Mlp(128, 60 * me.size).up, group, keep_encoded=keep)
        x = data(me.rank, ROWS, 2, 128).requires_grad_()
        y = column(x)
        events: list[str] = []

        def watched(name, start, events=events):
            def begin(*args):
                events.append(f"issue {name}")
                pending = start(*args)

                def wait():
                    events.append(f"wait {name}")
                    return pending.wait()

                return mock.Mock(wait=wait)

            return begin

        product = torch.matmul

        def matmul(*args, events=events, product=product):
            events.append("product")
            return product(*args)

        with (
            mock.patch.object(exchange, gather, watched("gather", getattr(exchange, gather))),
            mock.patch.object(
                exchange,
                "start_reduce_scatter",
                watched("scatter", exchange.start_reduce_scatter),
            ),
            mock.patch.object(torch, "matmul", matmul),
        ):
            y.sum().backward()
        assert events == [
            "issue gather",
            "product",
            "wait gather",
            "issue scatter",
            "product",
            "wait scatter",
        ], events


@checks
def issuing_does_not_wait_for_peers(me: Rank) -> None:
    """A rank whose peers are late goes on with its product."""
    x = data(me.rank, 2 * ROWS, 128)
    group = _all_quantized()
    store = dist.distributed_c10d._get_default_store()
    if me.rank == 0:
        pending = exchange.start_reduce_scatter(x[: me.size * 80].clone(), group, None, True)
        store.set("rank 0 went on", "1")
        pending.wait()
    else:
        store.wait(["rank 0 went on"])
        exchange.start_reduce_scatter(x[: me.size * 80].clone(), group, None, True).wait()


@checks
def a_trace_shows_the_collectives_beside_the_products(me: Rank) -> None:
    """On rank 0, whose peers come to a collective only after the product that is to run beside it.

    So the range of a collective holds that of a product, however fast either is.
    """
    column = sp.ColumnParallelLinear(
        _Mlp(128, 60 * me.size).up, _all_quantized(), keep_encoded=False
    )
    y = column(data(me.rank, ROWS, 2, 128).requires_grad_())
    store = dist.distributed_c10d._get_default_store()
    product, products = torch.matmul, iter(("first", "second"))

    def then_told(*args):
        result = product(*args)
        store.set(f"trace: {next(products)} product", "done")
        return result

    def late(start, which):
        def begin(*args):
            store.wait([f"trace: {which} product"])
            return start(*args)

        return begin

    if me.rank == 0:
        patches = [mock.patch.object(torch, "matmul", then_told)]
    else:
        patches = [
            mock.patch.object(exchange, name, late(getattr(exchange, name), which))
            for name, which in (("start_gather", "first"), ("start_reduce_scatter", "second"))
        ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        profile = stack.enter_context(
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        )
        y.sum().backward()
    if me.rank != 0:
        return
    ranges = {
        name: sorted(
            (event.time_range.start, event.time_range.end)
            for event in profile.events()
            if event.name == name
        )
        for name in ("agoq:all_gather", "agoq:reduce_scatter", "aten::mm")
    }
    (gather,), (scatter,) = ranges["agoq:all_gather"], ranges["agoq:reduce_scatter"]
    first, second = ranges["aten::mm"]
    assert gather[0] < first[0] < first[1] < gather[1], ranges
    assert scatter[0] < second[0] < second[1] < scatter[1], ranges


@checks
def a_block_compiles_without_a_graph_break(me: Rank) -> None:
    net = _split(_Mlp(128, 60 * me.size), None)
    expected = _run(me, net, 128)
    gradients = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    for actual, right in zip(_run(me, compiled, 128), expected, strict=True):
        equal(actual, right)
    for p, right in zip(net.parameters(), gradients, strict=True):
        equal(p.grad, right)


@checks
def layers_on_one_rank(me: Rank) -> None:
    alone = [dist.new_group([rank]) for rank in range(me.size)][me.rank]
    whole = _Mlp(128, 64)
    net = _split(whole, alone)
    x = data(0, ROWS, 128)
    equal(net(x), whole.down(F.silu(whole.up(x))))


@checks
def a_layer_that_cannot_be_split_says_so(me: Rank) -> None:
    for make in (sp.ColumnParallelLinear, sp.RowParallelLinear):
        with refused("cannot be split evenly", ValueError):
            make(nn.Linear(me.size * 2 + 1, me.size * 2 + 1))


@checks
def torchs_tensor_parallel_styles(me: Rank) -> None:
    """DTensor issues functional collectives; the backend serves them quantized."""
    width, hidden = 128, 64 * me.size
    whole = _Mlp(width, hidden)
    exact = _Mlp(width, hidden)
    mesh = init_device_mesh(
        "cpu",
        (me.size,),
        mesh_dim_names=("tp",),
        backend_override={"tp": ("agoq", agoq_comm.Options(quantize=EVERYTHING))},
    )
    parallelize_module(
        whole,
        mesh,
        {
            "norm": SequenceParallel(sequence_dim=0),
            "up": PrepareModuleInput(
                input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),)
            ),
        },
    )
    parallelize_module(
        whole,
        mesh,
        {"up": ColwiseParallel(), "down": RowwiseParallel(output_layouts=Shard(0))},
    )
    x = torch.cat([data(rank, ROWS, 2, width) for rank in range(me.size)])
    mine = x[me.rank * ROWS : (me.rank + 1) * ROWS].clone().requires_grad_()
    y = whole(mine)
    y.square().sum().backward()
    x.requires_grad_()
    z = exact(x)
    z.square().sum().backward()
    part = slice(me.rank * ROWS, (me.rank + 1) * ROWS)
    assert 0 < _error(y.detach(), z.detach()[part]) < 0.03
    assert 0 < _error(mine.grad, x.grad[part]) < 0.03
    for p, right in zip(whole.parameters(), exact.parameters(), strict=True):
        assert _error(p.grad.full_tensor(), right.grad) < 0.03
    stats = agoq_comm.stats(mesh.get_group("tp"))
    assert stats["all_gather"]["quantized_calls"] >= 2, stats
    assert stats["reduce_scatter"]["quantized_calls"] >= 2, stats
