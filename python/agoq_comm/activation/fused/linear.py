"""A linear layer that computes its input again rather than saving it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from agoq_comm.activation.fused.recipe import Method, Recipe


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    recipe: Recipe,
    in_first: bool = False,
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
    in_first : bool
        The weight's first dimension is that of the input features, and there is a bias: Hugging
        Face's Conv1D.
    """
    recipe.method.add_reader()
    output: torch.Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, recipe.method, in_first, *recipe.sources
    )
    return output


def conv1d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute what Hugging Face's Conv1D does."""
    rows = torch.addmm(bias, x.view(-1, x.shape[-1]), weight)
    return rows.view(*x.shape[:-1], weight.shape[1])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Any,
        weight: Any,
        bias: Any,
        method: Method,
        in_first: bool,
        *sources: torch.Tensor | None,
    ) -> Any:
        ctx.save_for_backward(weight, *sources)
        ctx.method, ctx.x_type, ctx.in_first = method, (x.shape, x.dtype), in_first
        return conv1d(x, weight, bias) if in_first else F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        weight, *sources = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        # The type of the products is that of the output: autocast may have chosen it.
        rows = grad.reshape(-1, grad.shape[-1])
        if ctx.needs_input_grad[1]:
            x = ctx.method.take(*sources).to(grad.dtype).reshape(-1, ctx.x_type[0][-1])
            grad_weight = (x.t() @ rows if ctx.in_first else rows.t() @ x).to(weight.dtype)
            del x  # Before there is another tensor of its size.
        if ctx.needs_input_grad[0]:
            shape, dtype = ctx.x_type
            towards_x = weight.t() if ctx.in_first else weight
            grad_x = (rows @ towards_x.to(grad.dtype)).view(shape).to(dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias, None, None, *([None] * len(sources))
