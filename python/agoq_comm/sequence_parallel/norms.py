"""RMSNorm fused with the collectives around it.

Between two blocks of a transformer stand a reduce-scatter, the residual's addition, a norm and an
all-gather. Here the first three are one pass over the rows, which also encodes what the all-gather
sends: each finished row is added to, normed and encoded while it is in cache, and nothing is read
again from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from agoq_comm.sequence_parallel import norm_operators, operators
from agoq_comm.sequence_parallel.policy import QuantizationPolicy
from agoq_comm.sequence_parallel.regions import _members, _policy, _sizes


class Normed(NamedTuple):
    """Normed rows of this rank, with the bytes in which they will travel.

    Parameters
    ----------
    values : Tensor
        The rows, which take part in autograd.
    encoded : Tensor
        uint8: the same rows encoded; empty where they are to travel as they are.
    """

    values: torch.Tensor
    encoded: torch.Tensor


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float = 1e-5,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> Normed:
    """RMSNorm of this rank's part of the sequence, encoded on the way where it will travel so.

    Parameters
    ----------
    x : Tensor
        This rank's part of the sequence; the last dimension is normed.
    weight : Tensor
        As many elements as the last dimension. Its gradient is that of this rank's part.
    epsilon : float
        Added to the mean square.
    group : ProcessGroup, optional
        The ranks that share the sequence; the world by default.
    policy : QuantizationPolicy, optional
        The default policy by default.
    """
    members = _members(group)
    values, encoded = _Norm.apply(  # type: ignore[no-untyped-call]
        x, weight, epsilon, members, _policy(policy).forward
    )
    return Normed(values, encoded)


def reduce_scatter_norm(
    input_: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float = 1e-5,
    group: dist.ProcessGroup | None = None,
    input_split_sizes: Sequence[int] | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> tuple[torch.Tensor, Normed]:
    """Sum over the ranks, keep this rank's part, add the residual, and norm the result.

    Returns the rows before the norm, which are the next residual, and the normed ones. The sum and
    the residual are added in fp32 and rounded once, to the wider of their two types.

    Parameters
    ----------
    input_ : Tensor
        This rank's term of the sum, of the whole sequence.
    residual : Tensor
        This rank's part of the sequence.
    input_split_sizes : sequence of int, optional
        Length of each rank's part; all are equal by default.

    The others are those of `rms_norm`.
    """
    members = _members(group)
    chosen = _policy(policy)
    wider = torch.promote_types(input_.dtype, residual.dtype)
    input_, residual = input_.to(wider), residual.to(wider)
    sizes = _sizes(None if input_split_sizes is None else list(input_split_sizes))
    sums, values, encoded = _ReduceScatterNorm.apply(  # type: ignore[no-untyped-call]
        input_, residual, weight, epsilon, members, chosen.forward, chosen.backward, sizes
    )
    return sums, Normed(values, encoded)


def gather_normed(
    normed: Normed,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Gather normed rows along the first dimension, in the bytes that they are encoded in.

    All ranks have parts of one length. Gradients are reduce-scattered.
    """
    members = _members(group)
    if members.size() == 1:
        return normed.values
    chosen = _policy(policy)
    whole: torch.Tensor = _GatherNormed.apply(  # type: ignore[no-untyped-call]
        normed.values, normed.encoded, members, chosen.forward, chosen.backward
    )
    return whole


def _norm_gradients(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of x and of the weight, in fp32, or in fp64 where that is what they are."""
    wide = torch.promote_types(x.dtype, torch.float32)
    x, grad = x.to(wide), grad.to(wide)
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)
    unit = x * inverse
    scaled = grad * weight.to(wide)
    grad_x = inverse * (scaled - unit * (scaled * unit).mean(-1, keepdim=True))
    return grad_x, (grad * unit).flatten(0, -2).sum(0)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, epsilon: float, group: Any, quantized: bool) -> Any:
        values, encoded = norm_operators.rms_norm(x, weight, epsilon, group.group_name, quantized)
        ctx.save_for_backward(x, weight)
        ctx.epsilon = epsilon
        ctx.mark_non_differentiable(encoded)
        return values, encoded

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> Any:
        x, weight = ctx.saved_tensors
        grad_x, grad_weight = _norm_gradients(grad, x, weight, ctx.epsilon)
        return grad_x.to(x.dtype), grad_weight.to(weight.dtype), None, None, None


class _ReduceScatterNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Any,
        residual: Any,
        weight: Any,
        epsilon: float,
        group: Any,
        forward: bool,
        backward: bool,
        sizes: tuple[int, ...] | None,
    ) -> Any:
        sums, values, encoded = norm_operators.reduce_scatter_norm(
            x, residual, weight, epsilon, group.group_name, sizes, forward, forward
        )
        ctx.save_for_backward(sums, weight)
        ctx.group, ctx.quantized, ctx.sizes, ctx.epsilon = group, backward, sizes, epsilon
        ctx.mark_non_differentiable(encoded)
        return sums, values, encoded

    @staticmethod
    def backward(ctx: Any, grad_sums: Any, grad_values: Any, _: Any) -> Any:
        sums, weight = ctx.saved_tensors
        grad, grad_weight = _norm_gradients(grad_values, sums, weight, ctx.epsilon)
        grad = (grad + grad_sums).to(sums.dtype)
        grad_x = grad
        if ctx.group.size() > 1:
            grad_x = operators.gather(grad, ctx.group.group_name, ctx.sizes, ctx.quantized)
        return grad_x, grad, grad_weight.to(weight.dtype), None, None, None, None, None


class _GatherNormed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Any, encoded: Any, group: Any, forward: bool, backward: bool
    ) -> Any:
        ctx.group, ctx.quantized = group, backward
        if encoded.numel():
            return norm_operators.gather_encoded(values, encoded, group.group_name)
        return operators.gather(values, group.group_name, None, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        name = ctx.group.group_name
        grad_x = operators.reduce_scatter(grad, name, None, ctx.quantized)
        return grad_x, None, None, None, None
