"""Dropout that saves a bit for each element, and whose output can be computed again."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from agoq_comm.activation.fused.bits import pack_bits, unpack_bits
from agoq_comm.activation.fused.recipe import Method, Recipe, attach


class _Dropped(Method):
    """What another method makes, without what was dropped."""

    def __init__(self, inner: Method, p: float, shape: torch.Size) -> None:
        super().__init__()
        self._inner, self._p, self._shape = inner, p, shape
        self.stored_as = inner.stored_as

    def compute(self, *sources: Any) -> torch.Tensor:
        bits, *inner = sources
        value = self._inner.compute(*inner).reshape(self._shape)
        return value * unpack_bits(bits, self._shape) * (1.0 / (1.0 - self._p))


def dropout(x: torch.Tensor, p: float, recipe: Recipe | None) -> torch.Tensor:
    """Drop elements with probability `p`, as `torch.nn.functional.dropout` does in training.

    Parameters
    ----------
    x : torch.Tensor
        Requires a gradient.
    p : float
        In (0, 1).
    recipe : Recipe, optional
        Of `x`; the output then carries one of its own.
    """
    with torch.no_grad():
        # The random numbers are those that torch would draw, and are used as it would use them.
        if x.is_cuda:
            output, mask = torch.native_dropout(x, p, True)
        else:
            noise = F.dropout(torch.ones_like(x), p)
            output, mask = x * noise, noise.ne(0)
        bits = pack_bits(mask)
    result: torch.Tensor = _Dropout.apply(x, output, bits, p)  # type: ignore[no-untyped-call]
    if recipe is None:
        return result
    return attach(result, _Dropped(recipe.method, p, x.shape), bits, *recipe.sources)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, output: Any, bits: Any, p: float) -> Any:
        ctx.save_for_backward(bits)
        ctx.p, ctx.shape = p, x.shape
        return output.view_as(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        (bits,) = ctx.saved_tensors
        mask = unpack_bits(bits, ctx.shape)
        return grad * mask * (1.0 / (1.0 - ctx.p)), None, None, None
