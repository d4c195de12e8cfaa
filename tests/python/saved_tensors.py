"""What the tests of saved tensors share: small modules, and ways to look at what was saved."""

from __future__ import annotations

import torch
from torch import nn

from agoq_comm.activation import Policy, compress

ALL_INT8 = Policy(default="int8")
BIG = (16, 256)


class Call(nn.Module):
    """A module that runs a function."""

    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(value))

    def forward(self, *args):
        return self.function(self, *args)


class Look(torch.autograd.Function):
    """Saves tensors, and puts what comes back into a list."""

    @staticmethod
    def forward(ctx, got, *tensors):
        ctx.got = got
        ctx.save_for_backward(*tensors)
        return tensors[0].sum()

    @staticmethod
    def backward(ctx, grad):
        ctx.got.extend(ctx.saved_tensors)
        first, *others = ctx.saved_tensors
        return (None, grad.expand(first.shape), *(None for _ in others))


def gradients(loss, leaves, policy=None, model=None):
    """Gradients as autograd has them, or with what it saves stored as the policy says."""
    if policy is None:
        return torch.autograd.grad(loss(), leaves)
    with compress(model or nn.Module(), policy):
        value = loss()
    return torch.autograd.grad(value, leaves)


def distance(a, b):
    return ((a - b).norm() / b.norm()).item()


def saved_by(model, *args, policy=ALL_INT8):
    """Run and return the result and the context; nothing was released yet."""
    with compress(model, policy) as context:
        result = model(*args)
    return result, context
