"""Megatron-LM's functions between the regions of a model that is split by sequence and by tensor.

Names, arguments and meaning are those of ``megatron.core.tensor_parallel.mappings``, with one
keyword more: `policy`. A group of one rank returns its input, the same tensor. A group is one of
the backend ``agoq``; by default the world.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from agoq_comm.sequence_parallel import operators
from agoq_comm.sequence_parallel.policy import QuantizationPolicy, default_policy

__all__ = [
    "all_gather_last_dim_from_tensor_parallel_region",
    "copy_to_tensor_model_parallel_region",
    "gather_from_sequence_parallel_region",
    "gather_from_tensor_model_parallel_region",
    "reduce_from_tensor_model_parallel_region",
    "reduce_scatter_last_dim_to_tensor_parallel_region",
    "reduce_scatter_to_sequence_parallel_region",
    "scatter_to_sequence_parallel_region",
    "scatter_to_tensor_model_parallel_region",
]

Sizes = tuple[int, ...] | None


def copy_to_tensor_model_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Pass the input on; its gradient is summed over the ranks."""
    members = _members(group)
    return _run(_Copy, input_, members, _policy(policy))


def reduce_from_tensor_model_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Sum over the ranks; the gradient passes."""
    members = _members(group)
    return _run(_Reduce, input_, members, _policy(policy))


def scatter_to_tensor_model_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Keep this rank's part of the last dimension; gradients are gathered along it."""
    members = _members(group)
    return _run(_SplitLast, input_, members, _policy(policy))


def gather_from_tensor_model_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Gather along the last dimension; of the gradient this rank's part is kept."""
    members = _members(group)
    return _run(_GatherLastOfReplicas, input_, members, _policy(policy))


def scatter_to_sequence_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Keep this rank's part of the first dimension; gradients are gathered along it."""
    members = _members(group)
    return _run(_SplitFirst, input_, members, _policy(policy))


def gather_from_sequence_parallel_region(
    input_: torch.Tensor,
    tensor_parallel_output_grad: bool = True,
    group: dist.ProcessGroup | None = None,
    output_split_sizes: list[int] | None = None,
    use_global_buffer: bool = False,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Gather along the first dimension.

    Parameters
    ----------
    input_ : torch.Tensor
        This rank's part of the sequence.
    tensor_parallel_output_grad : bool
        What follows is split between the ranks, so each has a part of the gradient's sum: gradients
        are reduce-scattered. Otherwise all compute the same, and each keeps its part.
    group : ProcessGroup, optional
        The ranks that share the sequence.
    output_split_sizes : list of int, optional
        Length of each rank's part; all are equal by default.
    use_global_buffer : bool
        Accepted for Megatron's callers. Results are tensors of their own either way.
    policy : QuantizationPolicy, optional
        The default policy by default.
    """
    del use_global_buffer
    if output_split_sizes is not None and not tensor_parallel_output_grad:
        raise ValueError(
            "agoq_comm: output_split_sizes are of use only with tensor_parallel_output_grad=True."
        )
    function = _GatherFirst if tensor_parallel_output_grad else _GatherFirstOfReplicas
    members = _members(group)
    return _run(function, input_, members, _policy(policy), _sizes(output_split_sizes))


def reduce_scatter_to_sequence_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    input_split_sizes: list[int] | None = None,
    use_global_buffer: bool = False,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Sum over the ranks and keep this rank's part of the first dimension; gradients are gathered.

    See `gather_from_sequence_parallel_region` for the arguments.
    """
    del use_global_buffer
    members = _members(group)
    return _run(_ReduceScatterFirst, input_, members, _policy(policy), _sizes(input_split_sizes))


def all_gather_last_dim_from_tensor_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Gather along the last dimension; gradients are reduce-scattered along it."""
    members = _members(group)
    return _run(_GatherLast, input_, members, _policy(policy))


def reduce_scatter_last_dim_to_tensor_parallel_region(
    input_: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    policy: QuantizationPolicy | None = None,
) -> torch.Tensor:
    """Sum over the ranks, keep this rank's part of the last dimension; gradients are gathered."""
    members = _members(group)
    return _run(_ReduceScatterLast, input_, members, _policy(policy))


def _members(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    members = dist.group.WORLD if group is None else group
    if members is None:
        raise RuntimeError(
            'agoq_comm: there is no group yet; call torch.distributed.init_process_group("agoq").'
        )
    return members


def _policy(policy: QuantizationPolicy | None) -> QuantizationPolicy:
    return default_policy() if policy is None else policy


def _sizes(sizes: list[int] | None) -> Sizes:
    return None if sizes is None else tuple(sizes)


def _run(
    function: Any,
    x: torch.Tensor,
    group: dist.ProcessGroup,
    policy: QuantizationPolicy,
    sizes: Sizes = None,
) -> torch.Tensor:
    if group.size() == 1:
        return x
    return function.apply(x, group, policy.forward, policy.backward, sizes)


def _part(x: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    if x.shape[dim] % group.size():
        raise ValueError(
            f"agoq_comm: dimension {dim} is {x.shape[dim]}, no multiple of the {group.size()} "
            "ranks it is to be split between."
        )
    share = x.shape[dim] // group.size()
    # A copy: what a rank keeps must not hold on to the memory of the whole.
    return x.narrow(dim, group.rank() * share, share).clone(memory_format=torch.contiguous_format)


def _gather_last(x: torch.Tensor, group: dist.ProcessGroup, quantized: bool) -> torch.Tensor:
    """Gather along the first dimension, then lay the parts side by side."""
    whole = operators.gather(x, group.group_name, None, quantized)
    return torch.cat(whole.chunk(group.size()), dim=-1)


def _reduce_scatter_last(
    x: torch.Tensor, group: dist.ProcessGroup, quantized: bool
) -> torch.Tensor:
    """Lay the parts one below the other, then reduce-scatter along the first dimension."""
    if x.shape[-1] % group.size():
        raise ValueError(
            f"agoq_comm: the last dimension is {x.shape[-1]}, no multiple of the {group.size()} "
            "ranks it is to be split between."
        )
    parts = torch.cat(x.chunk(group.size(), dim=-1))
    return operators.reduce_scatter(parts, group.group_name, None, quantized)


# Autograd functions. `ctx` keeps the group and what the way back needs; no tensor is saved.


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized = group, backward
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return operators.all_reduce(grad, ctx.group.group_name, ctx.quantized), *_NO_GRADIENTS


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        return operators.all_reduce(x, group.group_name, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, *_NO_GRADIENTS


class _SplitLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized = group, backward
        return _part(x, x.dim() - 1, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _gather_last(grad, ctx.group, ctx.quantized), *_NO_GRADIENTS


class _GatherLastOfReplicas(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group = group
        return _gather_last(x, group, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _part(grad, grad.dim() - 1, ctx.group), *_NO_GRADIENTS


class _SplitFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized = group, backward
        return _part(x, 0, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return operators.gather(grad, ctx.group.group_name, None, ctx.quantized), *_NO_GRADIENTS


class _GatherFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized, ctx.sizes = group, backward, sizes
        return operators.gather(x, group.group_name, sizes, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        name = ctx.group.group_name
        return operators.reduce_scatter(grad, name, ctx.sizes, ctx.quantized), *_NO_GRADIENTS


class _GatherFirstOfReplicas(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group = group
        return operators.gather(x, group.group_name, None, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _part(grad, 0, ctx.group), *_NO_GRADIENTS


class _ReduceScatterFirst(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized, ctx.sizes = group, backward, sizes
        return operators.reduce_scatter(x, group.group_name, sizes, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        name = ctx.group.group_name
        return operators.gather(grad, name, ctx.sizes, ctx.quantized), *_NO_GRADIENTS


class _GatherLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized = group, backward
        return _gather_last(x, group, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _reduce_scatter_last(grad, ctx.group, ctx.quantized), *_NO_GRADIENTS


class _ReduceScatterLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, group: Any, forward: bool, backward: bool, sizes: Sizes) -> Any:
        ctx.group, ctx.quantized = group, backward
        return _reduce_scatter_last(x, group, forward)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return _gather_last(grad, ctx.group, ctx.quantized), *_NO_GRADIENTS


# For group, forward, backward and sizes.
_NO_GRADIENTS = (None, None, None, None)
