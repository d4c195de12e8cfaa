"""compress within autograd's graphs: retained, twice differentiated, nested, and let go."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from agoq_comm.activation import Policy, compress
from saved_tensors import ALL_INT8, BIG, Call, distance, saved_by


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def test_retain_graph_unpacks_twice_and_alike():
    x = torch.randn(BIG, requires_grad=True)
    y, context = saved_by(Call(lambda self, x: x.exp().sin()), x)
    (first,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    held = context.accounting.stored_bytes
    (second,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(first, second)
    assert held > 0
    assert context.accounting.stored_bytes == 0


@pytest.mark.parametrize("within", [True, False])
def test_double_backward(within):
    w = nn.Parameter(torch.randn(256, 256) / 16)
    x = torch.randn(BIG, requires_grad=True)

    def second(policy):
        model = Call(lambda self, x: torch.tanh(F.linear(x, w)))
        with compress(model, policy):
            y = model(x)
            if within:
                (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        if not within:
            (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, w])

    def stock():
        y = torch.tanh(F.linear(x, w))
        (g,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), [x, w])

    for ours, exact in zip(second(Policy.exact()), stock(), strict=True):
        assert torch.equal(ours, exact)
    for ours, exact in zip(second(ALL_INT8), stock(), strict=True):
        assert distance(ours, exact) < 0.03


def test_a_tensor_that_is_output_and_saved_lets_its_graph_go():
    """Pytorch #180287: the result that exp saves would keep exp, which holds it, alive."""
    for policy in (ALL_INT8, Policy.exact()):
        x = torch.randn(BIG, requires_grad=True)
        y, context = saved_by(Call(lambda self, x: x.exp()), x, policy=policy)
        alive = weakref.ref(y)  # It lasts as long as the tensor does within autograd.
        gc.disable()
        try:
            del y
            assert alive() is None
            assert context.accounting.stored_bytes == 0
        finally:
            gc.enable()


class _Doubled(torch.autograd.Function):
    """Saves its input and its result, the result being an input too."""

    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.save_for_backward(x, y)
        ctx.bypassed = x
        return y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        assert y.dtype == x.dtype == ctx.bypassed.dtype
        assert (y - 2 * x).abs().max() < 0.1
        return 2 * grad


def test_functions_of_users_and_what_they_keep_beside_the_hooks():
    """Tensors stored as ctx.x bypass hooks: they are what they are, and are not counted."""
    x = torch.randn(BIG, requires_grad=True)
    y, context = saved_by(Call(lambda self, x: _Doubled.apply(x)), x)
    assert [r.format for r in context.accounting.records] == ["int8/128"] * 2
    y.sum().backward()
    assert torch.equal(x.grad, torch.full(BIG, 2.0))


def test_each_is_freed_when_its_own_backward_is_done():
    x = torch.randn(BIG, requires_grad=True)
    held = []

    class Watch(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            held.append(context.accounting.stored_bytes)
            return grad

    def run(self, x):
        for _ in range(4):
            x = Watch.apply((x * 0.5).sin())
        return x

    y, context = saved_by(Call(run), x)
    one = context.accounting.stored_bytes // 4
    y.sum().backward()
    assert held == [4 * one, 3 * one, 2 * one, one]
    assert context.accounting.peak_stored_bytes == 4 * one


def test_originals_die_while_the_graph_lives():
    """Actnn #35: no memory is saved if someone still holds them."""
    x = torch.randn(BIG, requires_grad=True)
    storages = []

    def run(self, x):
        for _ in range(3):
            x = (x * 0.5).sin()
        return x.sum()

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.shape == BIG:
                storages.append(weakref.ref(out))
            return out

    with Spy():
        y, context = saved_by(Call(run), x)
    assert len(storages) == 6
    assert all(tensor() is None for tensor in storages)
    assert context.accounting.stored_bytes < context.accounting.original_bytes / 3
    y.backward()


# --- hooks -----------------------------------------------------------------------------------


def test_nested_hooks_the_innermost_alone_sees_a_tensor():
    x = torch.randn(BIG, requires_grad=True)
    seen = []
    model = Call(lambda self, x: x.exp())
    with compress(model, ALL_INT8) as outer:
        with saved_tensors_hooks(lambda t: seen.append(t) or t.detach(), lambda t: t):
            a = model(x)
        with compress(model, Policy(default="int8/32")) as inner:
            b = model(x)
        c = model(x)
    assert len(seen) == 1
    assert [r.format for r in inner.accounting.records] == ["int8/32"]
    assert [r.format for r in outer.accounting.records] == ["int8/128"]
    (a + b + c).sum().backward()
    assert distance(x.grad, 3 * x.detach().exp()) < 0.02


def test_packing_never_changes_its_input_nor_shares_its_memory():
    """Pytorch #62717: a pack hook that changes its input."""
    x = torch.randn(BIG, requires_grad=True)
    y = (x * 1).transpose(0, 1)
    before, version = y.detach().clone(), y._version
    z, _ = saved_by(Call(lambda self, y: y.square()), y)
    assert torch.equal(y, before)
    assert y._version == version
    assert y.data_ptr() != 0
    assert y.shape == before.shape
    z.sum().backward()
    assert distance(x.grad, 2 * x.detach()) < 0.01


def test_unpacking_in_any_order():
    """Pytorch #198016: nothing may rely on the last packed being the first unpacked."""
    xs = [torch.randn(BIG, requires_grad=True) for _ in range(4)]
    model = Call(lambda self, x: x.exp())
    with compress(model, ALL_INT8):
        ys = [model(x) for x in xs]
    for index in (2, 0, 3, 1):
        (grad,) = torch.autograd.grad(ys[index].sum(), xs[index])
        assert distance(grad, xs[index].detach().exp()) < 0.02
