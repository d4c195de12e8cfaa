"""Linear layers that are split between the ranks, with the sequence split around them."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from agoq_comm.sequence_parallel import linear_operators
from agoq_comm.sequence_parallel.norms import Normed, reduce_scatter_norm
from agoq_comm.sequence_parallel.policy import EXACT, QuantizationPolicy
from agoq_comm.sequence_parallel.regions import (
    _members,
    _policy,
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
    reduce_scatter_to_sequence_parallel_region,
)


class _SplitLinear(nn.Module):
    """What both layers have, and how they are copied and shown."""

    weight: nn.Parameter

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        sequence_parallel: bool,
        policy: QuantizationPolicy | None,
    ) -> None:
        super().__init__()
        self.group = _members(group)
        self.sequence_parallel = sequence_parallel
        self.policy = policy

    def __deepcopy__(self, memo: dict[int, Any]) -> _SplitLinear:
        """Copy parameters, as averages of weights ask for; the group is the same one."""
        memo[id(self.group)] = self.group
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def extra_repr(self) -> str:
        """Return this rank's features, and how many ranks there are."""
        features, inputs = self.weight.shape
        return (
            f"in_features={inputs}, out_features={features}, one out of "
            f"{self.group.size()} ranks, sequence_parallel={self.sequence_parallel}"
        )


class ColumnParallelLinear(_SplitLinear):
    """This rank's output features of a linear layer.

    With sequence parallelism the input is this rank's part of the first dimension, which is
    gathered; the output is the whole sequence, and this rank's features. Without, the input is
    whole and its gradient is summed over the ranks.

    Parameters
    ----------
    linear : Linear
        The whole layer, the same on all ranks; a copy of this rank's part is taken.
    group : ProcessGroup, optional
        The ranks that share the layer, a group of the backend ``agoq``; the world by default.
    sequence_parallel : bool
        The sequence is split between the ranks outside of the layer.
    policy : QuantizationPolicy, optional
        The default policy by default.
    keep_encoded : bool
        Keep an input that travels quantized as the bytes that travelled, and send these again in
        the backward pass. Otherwise it is kept as it came, and encoded anew.
    """

    def __init__(
        self,
        linear: nn.Linear,
        group: dist.ProcessGroup | None = None,
        *,
        sequence_parallel: bool = True,
        policy: QuantizationPolicy | None = None,
        keep_encoded: bool = True,
    ) -> None:
        super().__init__(group, sequence_parallel, policy)
        self.keep_encoded = keep_encoded
        self.weight = _part_of(linear.weight, 0, self.group)
        self.bias = None if linear.bias is None else _part_of(linear.bias, 0, self.group)

    def forward(self, x: torch.Tensor | Normed) -> torch.Tensor:
        """Apply to this rank's part of the sequence, or to all of it.

        Of `Normed` rows the encoded bytes travel as they are, and are what is kept, if the policy
        quantizes the forward pass.
        """
        policy = _policy(self.policy)
        encoded = None
        if isinstance(x, Normed):
            encoded = x.encoded if policy.forward and x.encoded.numel() else None
            x = x.values
        if self.group.size() == 1:
            return F.linear(x, self.weight, self.bias)
        if not self.sequence_parallel:
            whole = copy_to_tensor_model_parallel_region(x, self.group, policy=policy)
            return F.linear(whole, self.weight, self.bias)
        output: torch.Tensor = _ColumnLinear.apply(  # type: ignore[no-untyped-call]
            _as_autocast(x),
            _as_autocast(self.weight),
            None if self.bias is None else _as_autocast(self.bias),
            self.group,
            policy.forward,
            policy.backward,
            self.keep_encoded,
            encoded,
        )
        return output


class RowParallelLinear(_SplitLinear):
    """This rank's input features of a linear layer.

    The input is the whole sequence, and this rank's features. The products are summed over the
    ranks: with sequence parallelism each keeps its part of the first dimension. The bias is whole
    on every rank, and added to the sum.

    Parameters are those of `ColumnParallelLinear`, without `keep_encoded`.
    """

    def __init__(
        self,
        linear: nn.Linear,
        group: dist.ProcessGroup | None = None,
        *,
        sequence_parallel: bool = True,
        policy: QuantizationPolicy | None = None,
    ) -> None:
        super().__init__(group, sequence_parallel, policy)
        self.weight = _part_of(linear.weight, 1, self.group)
        bias = linear.bias
        self.bias = (
            None if bias is None else nn.Parameter(bias.detach().clone(), bias.requires_grad)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply to the whole sequence and this rank's features."""
        product = F.linear(x, self.weight)
        if not self.sequence_parallel:
            y = reduce_from_tensor_model_parallel_region(product, self.group, policy=self.policy)
            return y if self.bias is None else y + self.bias.to(y.dtype)
        y = reduce_scatter_to_sequence_parallel_region(product, self.group, policy=self.policy)
        if self.bias is None:
            return y
        return y + self._shared_bias(self.bias).to(y.dtype)

    def into_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float = 1e-5
    ) -> tuple[torch.Tensor, Normed]:
        """Apply, add the residual and norm the result: `reduce_scatter_norm` of the product.

        For layers with sequence parallelism. Returns the rows before and after the norm.
        """
        if not self.sequence_parallel:
            raise ValueError("agoq_comm: into_norm is for layers with sequence_parallel=True.")
        if self.bias is not None:
            residual = residual + self._shared_bias(self.bias).to(residual.dtype)
        product = F.linear(x, self.weight)
        return reduce_scatter_norm(
            product, residual, weight, epsilon, self.group, policy=self.policy
        )

    def _shared_bias(self, bias: torch.Tensor) -> torch.Tensor:
        """Each rank adds it to its own part of the sequence only: its gradient sums over all."""
        return copy_to_tensor_model_parallel_region(bias, self.group, policy=EXACT)


def _as_autocast(x: torch.Tensor) -> torch.Tensor:
    """Cast as autocast would for a linear layer: the products inside of an operator are ours."""
    kind = x.device.type
    # There is none for meta tensors, which have shapes alone.
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return x
    if x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(kind))


def _part_of(whole: torch.Tensor, dim: int, group: dist.ProcessGroup) -> nn.Parameter:
    if whole.shape[dim] % group.size():
        raise ValueError(
            f"agoq_comm: {whole.shape[dim]} features cannot be split evenly between "
            f"{group.size()} ranks."
        )
    part = whole.detach().chunk(group.size(), dim)[group.rank()]
    return nn.Parameter(part.clone(memory_format=torch.contiguous_format), whole.requires_grad)


class _ColumnLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Any,
        weight: Any,
        bias: Any,
        group: Any,
        forward: bool,
        backward: bool,
        keep: bool,
        encoded: Any,
    ) -> Any:
        output, kept = linear_operators.column_linear(
            x, weight, bias, group.group_name, forward, keep, encoded
        )
        if encoded is not None and keep:
            kept = encoded
        if not ctx.needs_input_grad[1]:
            ctx.save_for_backward(weight)
        else:
            ctx.save_for_backward(weight, kept if kept.numel() else x)
        ctx.group, ctx.policy = group, (forward, backward)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        weight, saved = ctx.saved_tensors if wants_weight else (*ctx.saved_tensors, None)
        grad_x, grad_weight = linear_operators.column_linear_backward(
            grad, saved, weight, ctx.group.group_name, *ctx.policy, wants_x
        )
        return (
            grad_x if wants_x else None,
            grad_weight if wants_weight else None,
            grad.flatten(0, -2).sum(0) if wants_bias else None,
            *(None,) * 5,
        )
