"""A linear layer that computes its input again rather than saving it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from agoq_comm.activation.fused.recipe import Method, Recipe


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, recipe: Recipe
) -> torch.Tensor:
    """Compute what `torch.nn.functional.linear` does.

    Parameters
    ----------
    x : torch.Tensor
        The input, contiguous if it is a view of what the recipe makes.
    weight, bias : torch.Tensor
        Of the layer; the weight requires a gradient, or the input would not be needed.
    recipe : Recipe
        Of the input.
    """
    recipe.method.add_reader()
    output: torch.Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, recipe.method, *recipe.sources
    )
    return output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, method: Method, *sources: torch.Tensor | None
    ) -> Any:
        ctx.save_for_backward(weight, *sources)
        ctx.method, ctx.x_type = method, (x.shape, x.dtype)
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        weight, *sources = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        # The type of the products is that of the output: autocast may have chosen it.
        rows = grad.reshape(-1, grad.shape[-1])
        if ctx.needs_input_grad[1]:
            x = ctx.method.take(*sources).to(grad.dtype)
            grad_weight = (rows.t() @ x.reshape(-1, weight.shape[1])).to(weight.dtype)
        if ctx.needs_input_grad[0]:
            shape, dtype = ctx.x_type
            grad_x = (rows @ weight.to(grad.dtype)).view(shape).to(dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias, None, *([None] * len(sources))
