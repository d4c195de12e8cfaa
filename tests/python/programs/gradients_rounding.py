"""Stochastic rounding and error feedback: sums of many small gradients come out right."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import agoq_comm
from agoq_comm.gradients import QuantizedGradients
from checks import Checks
from programs.common import data, equal
from ranks import Rank

checks = Checks()
STEPS = 400


def _parameter() -> nn.Parameter:
    return nn.Parameter(torch.zeros(4, 256))


def _accumulated(gradients: QuantizedGradients, p: nn.Parameter, g: torch.Tensor) -> torch.Tensor:
    """The sum of one gradient over many micro-batches, on this rank."""
    with gradients.no_sync():
        for _ in range(STEPS):
            (p * g).sum().backward()
    return gradients.gradient(p)


def _bias(gradients: QuantizedGradients, p: nn.Parameter, g: torch.Tensor) -> float:
    right = g * STEPS
    return float((_accumulated(gradients, p, g) - right).norm() / right.norm())


@checks
def both_mend_the_bias_of_many_additions(me: Rank) -> None:
    """Late gradients are far below a step of the sum: rounded to nearest, many of them vanish."""
    g = data(me.rank, 4, 256)
    stochastic = dist.new_group(pg_options=agoq_comm.Options(rounding="stochastic", seed=3))
    errors = {}
    for name, keywords in (
        ("nearest", {}),
        ("stochastic", {"group": stochastic}),
        ("feedback", {"error_feedback": True}),
    ):
        p = _parameter()
        errors[name] = _bias(QuantizedGradients([p], **keywords), p, g)
    assert errors["nearest"] > 0.15, errors
    assert errors["stochastic"] < 0.1, errors
    assert errors["feedback"] < 0.01, errors


@checks
def feedback_carries_over_to_the_next_step(me: Rank) -> None:
    """The mean over steps converges to the gradient, beyond what one encoding can say."""
    g = data(me.rank, 4, 256)
    p = _parameter()
    gradients = QuantizedGradients([p], error_feedback=True)
    total = torch.zeros(4, 256)
    for _ in range(50):
        with gradients.no_sync():
            (p * g).sum().backward()
        total += gradients.gradient(p)
        gradients.zero_grad()
    once = QuantizedGradients([q := _parameter()])
    with once.no_sync():
        (q * g).sum().backward()
    single = float((once.gradient(q) - g).norm())
    assert float((total / 50 - g).norm()) < single / 10


@checks
def draws_differ_between_ranks_parameters_and_calls(me: Rank) -> None:
    group = dist.new_group(pg_options=agoq_comm.Options(rounding="stochastic", seed=7))
    same = torch.full((2, 256), 0.3)
    same[:, 0] = 1.0
    a, b = nn.Parameter(torch.zeros(2, 256)), nn.Parameter(torch.zeros(2, 256))
    gradients = QuantizedGradients([a, b], group)
    seen = []
    for _ in range(2):
        with gradients.no_sync():
            ((a + b) * same).sum().backward()
        seen += [gradients.gradient(a), gradients.gradient(b)]
        gradients.zero_grad()
    everyone = []
    for x in seen:
        parts = [torch.empty_like(x) for _ in range(me.size)]
        dist.all_gather(parts, x)
        everyone += parts
    for i, x in enumerate(everyone):
        assert not any(torch.equal(x, y) for y in everyone[:i])


@checks
def the_same_seed_gives_the_same_bits(me: Rank) -> None:
    results = []
    for _ in range(2):
        group = dist.new_group(pg_options=agoq_comm.Options(rounding="stochastic", seed=11))
        p = _parameter()
        gradients = QuantizedGradients([p], group)
        (p * data(me.rank, 4, 256)).sum().backward()
        gradients.reduce()
        results.append(gradients.gradient(p))
    equal(results[0], results[1])
