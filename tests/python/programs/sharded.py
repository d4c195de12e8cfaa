"""What shards on a group: FSDP2 and FSDP1, DTensor, functional collectives, checkpoints."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

import agoq_comm
from checks import Checks
from programs.common import (
    data,
    equal,
    quantized_all_reduce,
    quantized_reduce_scatter,
    roundtrip,
)
from programs.training import _batch, _exact_gradients, _loss, _model, _near
from ranks import Rank

checks = Checks()


def _mesh(me: Rank):
    return init_device_mesh("cpu", (me.size,), mesh_dim_names=("dp",))


def _quantized(operation: str, group: dist.ProcessGroup | None = None) -> int:
    return agoq_comm.stats(group).get(operation, {"quantized_calls": 0})["quantized_calls"]


def _fsdp(model: nn.Module, **options) -> nn.Module:
    for layer in (model[0], model[2]):
        fully_shard(layer, **options)
    return fully_shard(model, **options)


@checks
def fsdp2_averages(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    mesh = _mesh(me)
    group = mesh.get_group()
    before = _quantized("reduce_scatter", group)
    _fsdp(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    _loss(model, _batch(me)[1]).backward()
    for p, right in zip(model.parameters(), exact, strict=True):
        _near(p.grad.full_tensor(), right)
    assert _quantized("reduce_scatter", group) > before
    optimizer.step()


@checks
def fsdp2_premultiplied_sum(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    _fsdp(model, mesh=_mesh(me))
    for module in (model[0], model[2], model):
        module.set_gradient_divide_factor(4.0 * me.size)
    _loss(model, _batch(me)[1]).backward()
    for p, right in zip(model.parameters(), exact, strict=True):
        _near(p.grad.full_tensor(), right / 4)


@checks
def fsdp2_mixed_precision(me: Rank) -> None:
    """bf16 reduces with AVG; fp16 divides before and after a SUM."""
    for dtype, limit in ((torch.bfloat16, 0.05), (torch.float16, 0.03)):
        model = _model()
        exact = _exact_gradients(me, model)
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
        _fsdp(model, mesh=_mesh(me), mp_policy=policy)
        model(_batch(me)[1]).float().square().mean().backward()
        for p, right in zip(model.parameters(), exact, strict=True):
            _near(p.grad.full_tensor().float(), right, limit)


@checks
def hsdp_with_agoq_between_replicas(me: Rank) -> None:
    mesh = init_device_mesh(
        "cpu",
        (me.size, 1),
        mesh_dim_names=("replicate", "shard"),
        backend_override={"replicate": ("agoq", agoq_comm.Options()), "shard": "gloo"},
    )
    model = _model()
    exact = _exact_gradients(me, model)
    _fsdp(model, mesh=mesh)
    _loss(model, _batch(me)[1]).backward()
    for p, right in zip(model.parameters(), exact, strict=True):
        _near(p.grad.full_tensor(), right)
    assert _quantized("all_reduce", mesh.get_group("replicate")) > 0


@checks
def fsdp2_with_quantized_all_gather(me: Rank) -> None:
    """Forward and backward see parameters as their encoded bytes decode, on every rank alike."""
    options = agoq_comm.Options(quantize=("all_gather", "reduce_scatter"))
    mesh = init_device_mesh(
        "cpu", (me.size,), mesh_dim_names=("dp",), backend_override={"dp": ("agoq", options)}
    )
    model, seen = _model(), _model()
    with torch.no_grad():
        for layer in (seen[0], seen[2]):
            shards = zip(layer.weight.chunk(me.size), layer.bias.chunk(me.size), strict=True)
            for weight, bias in shards:
                sent = roundtrip(torch.cat([weight.flatten(), bias]))
                weight.copy_(sent[: weight.numel()].view_as(weight))
                bias.copy_(sent[weight.numel() :])
    exact = _exact_gradients(me, seen)
    _fsdp(model, mesh=mesh)
    x = _batch(me)[1]
    torch.testing.assert_close(model(x), seen(x))
    _loss(model, x).backward()
    assert _quantized("all_gather", mesh.get_group()) > 0
    for p, right in zip(model.parameters(), exact, strict=True):
        _near(p.grad.to_local(), right.chunk(me.size)[me.rank])


@checks
def fsdp1(me: Rank) -> None:
    model = _model()
    exact = _exact_gradients(me, model)
    sharded = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=False)
    _loss(sharded, _batch(me)[1]).backward()
    flat = torch.cat([g.flatten() for g in exact])
    part = -(-flat.numel() // me.size)
    mine = torch.cat([flat, torch.zeros(part * me.size - flat.numel())]).split(part)[me.rank]
    _near(next(sharded.parameters()).grad, mine)


@checks
def dtensor(me: Rank) -> None:
    mesh = _mesh(me)
    x = torch.randn(12, 12, generator=torch.Generator().manual_seed(1))
    rows = distribute_tensor(x, mesh, [Shard(0)])
    equal(rows.full_tensor(), x)
    columns = rows.redistribute(mesh, [Shard(1)])
    equal(columns.full_tensor(), x)
    product = torch.mm(columns, rows)
    assert product.placements == (Partial(),)
    torch.testing.assert_close(product.redistribute(mesh, [Replicate()]).to_local(), x @ x)


@checks
def dtensor_reductions_are_quantized(me: Rank) -> None:
    from torch.distributed.tensor import DTensor

    mesh = _mesh(me)
    inputs = [data(r, 240, 210) for r in range(me.size)]
    partial = DTensor.from_local(inputs[me.rank], mesh, [Partial()])
    equal(partial.redistribute(mesh, [Replicate()]).to_local(), quantized_all_reduce(inputs))
    rows = [list(x.chunk(me.size)) for x in inputs]
    equal(
        partial.redistribute(mesh, [Shard(0)]).to_local(), quantized_reduce_scatter(rows)[me.rank]
    )


@checks
def functional_collectives(me: Rank) -> None:
    world = dist.group.WORLD
    inputs = [data(r) for r in range(me.size)]
    equal(
        funcol.wait_tensor(funcol.all_reduce(inputs[me.rank], "sum", world)),
        quantized_all_reduce(inputs),
    )
    gathered = funcol.all_gather_tensor(torch.full((4,), float(me.rank)), 0, world)
    equal(funcol.wait_tensor(gathered), torch.arange(me.size).repeat_interleave(4).float())
    scattered = funcol.reduce_scatter_tensor(torch.ones(4 * me.size), "avg", 0, world)
    equal(funcol.wait_tensor(scattered), torch.ones(4))
    swapped = funcol.all_to_all_single(torch.full((me.size,), float(me.rank)), None, None, world)
    equal(funcol.wait_tensor(swapped), torch.arange(me.size).float())
    equal(
        funcol.wait_tensor(funcol.broadcast(torch.full((4,), float(me.rank)), 1, world)),
        torch.ones(4),
    )


@checks
def functional_collectives_coalesced(me: Rank) -> None:
    world = dist.group.WORLD
    for x in funcol.all_reduce_coalesced([torch.ones(4), torch.ones(5)], "sum", world):
        equal(funcol.wait_tensor(x), torch.full(x.shape, float(me.size)))
    for x in funcol.all_gather_into_tensor_coalesced([torch.ones(4), torch.ones(5)], world):
        assert funcol.wait_tensor(x).sum() == x.numel()
    parts = [torch.ones(4 * me.size), torch.ones(5 * me.size)]
    for x in funcol.reduce_scatter_tensor_coalesced(parts, "sum", [0, 0], world):
        equal(funcol.wait_tensor(x), torch.full(x.shape, float(me.size)))


@checks
def functional_collectives_compiled(me: Rank) -> None:
    def step(x):
        return funcol.wait_tensor(funcol.all_reduce(x * 2, "sum", dist.group.WORLD)) + 1

    inputs = [data(r) for r in range(me.size)]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    equal(compiled(inputs[me.rank]), quantized_all_reduce([2 * x for x in inputs]) + 1)


@checks
def all_reduce_compiled(me: Rank) -> None:
    def step(x):
        dist.all_reduce(x)
        return x + 1

    inputs = [data(r) for r in range(me.size)]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    equal(compiled(inputs[me.rank].clone()), quantized_all_reduce(inputs) + 1)


@checks
def compiled_by_inductor(me: Rank) -> None:
    def step(x):
        return funcol.wait_tensor(funcol.all_reduce(x * 2, "sum", dist.group.WORLD)) + 1

    inputs = [data(r) for r in range(me.size)]
    compiled = torch.compile(step, fullgraph=True)
    equal(compiled(inputs[me.rank]), quantized_all_reduce([2 * x for x in inputs]) + 1)


@checks
def differentiable_collectives(me: Rank) -> None:
    import torch.distributed.nn.functional as differentiable

    x = torch.ones(4, requires_grad=True)
    differentiable.all_reduce(x).sum().backward()
    equal(x.grad, torch.full((4,), float(me.size)))


@checks
def distributed_checkpoint(me: Rank) -> None:
    model = _fsdp(_model(), mesh=_mesh(me))
    before = {k: v.full_tensor().clone() for k, v in model.state_dict().items()}
    state = model.state_dict()
    directory = me.directory / "checkpoint"
    dcp.save({"model": state}, checkpoint_id=directory)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    target = {"model": model.state_dict()}
    dcp.load(target, checkpoint_id=directory)
    model.load_state_dict(target["model"])
    for key, value in model.state_dict().items():
        equal(value.full_tensor(), before[key])
