"""Gradients that a small error of what was saved would make wrong, and what is kept for them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agoq_comm.activation import Policy, compress
from saved_tensors import BIG, Call, distance, gradients, saved_by

WIDTH = BIG[1]


def test_relu_passes_gradients_to_all_that_is_above_zero():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    x = torch.randn(BIG, requires_grad=True)
    exact = torch.autograd.grad(model(x).sum(), x)[0]
    with compress(model, Policy.agoq()):
        y = model(x).sum()
    assert torch.equal(torch.autograd.grad(y, x)[0], exact)


@pytest.mark.parametrize(
    "function",
    [
        nn.LeakyReLU(),
        nn.PReLU(),
        nn.RReLU(),
        nn.SELU(),
        nn.ReLU6(),
        nn.Hardtanh(),
        nn.Hardsigmoid(),
        nn.Hardswish(),
        nn.Threshold(0.1, 20),
        nn.Hardshrink(),
        nn.Softshrink(),
    ],
    ids=lambda function: type(function).__name__,
)
def test_functions_whose_gradient_jumps_are_exact(function):
    """Stored in int8 their gradients would be wrong by 7 % to 17 %, and infinite for RReLU."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), function, nn.Linear(WIDTH, WIDTH))
    x = torch.randn(64, WIDTH, requires_grad=True)
    target = torch.randn(64, WIDTH)
    leaves = (x, *model.parameters())

    def loss():
        torch.manual_seed(1)  # RReLU draws.
        return (model(x) * target).sum()

    exact = gradients(loss, leaves)
    stored = gradients(loss, leaves, Policy.agoq("int8"), model)
    assert torch.equal(stored[0], exact[0])
    assert all(distance(a, b) <= 0.02 for a, b in zip(stored, exact, strict=True))


DIVISIONS = {
    "sqrt": lambda x: (x * x + 1e-6).sqrt(),
    "rsqrt": lambda x: (x * x + 1e-6).rsqrt(),
    "log": lambda x: (x.abs() + 1e-3).log(),
    "power": lambda x: x.abs().pow(0.5),
    "reciprocal": lambda x: 1 / (x.abs() + 0.1),
    "division": lambda x: x / (x.abs() + 0.1),
    "leaf": lambda x: x.log1p(),
}


@pytest.mark.parametrize("policy", [Policy.agoq(), Policy.uniform()], ids=["agoq", "uniform"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_nothing_is_divided_by_what_was_stored_as_zero(name, policy):
    model = Call(lambda self, x: DIVISIONS[name](x))
    x = torch.randn(BIG).exp().sub(0.999).requires_grad_()
    exact = gradients(lambda: model(x).sum(), (x,))
    assert torch.equal(gradients(lambda: model(x).sum(), (x,), policy, model)[0], exact[0])


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "reciprocal"])
def test_what_its_own_gradient_divides_by_is_exact_in_known_modules_too(name):
    class Mlp(nn.Module):
        def forward(self, x):
            return DIVISIONS[name](x)

    _, context = saved_by(Mlp(), torch.randn(BIG, requires_grad=True), policy=Policy.agoq())
    kept = [r.kept_reason for r in context.accounting.records if r.format is None]
    assert kept == ["its gradient divides by it"]
