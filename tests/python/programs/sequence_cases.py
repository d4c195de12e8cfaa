"""What sequence parallelism computes, tensor by tensor, for one device to be compared with another.

The forward pass of every function, and the way back of those that only move gradients, have the
same bits on any device; tests/cuda compares a GPU with the CPU by them. The rest of the way back is
made of torch's own operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from agoq_comm import sequence_parallel as sp
from programs.common import data

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Whole blocks, a short tail.
WIDTHS = (256, 200)
POLICIES = (
    sp.QuantizationPolicy(),
    sp.QuantizationPolicy(backward=False),
    sp.QuantizationPolicy(forward=False),
    sp.EXACT,
)
EPSILON = 1e-5

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Case:
    """Where and what of: this rank has `rows` rows of `width` elements of an even split."""

    rank: int
    size: int
    device: str
    group: dist.ProcessGroup | None
    policy: sp.QuantizationPolicy
    dtype: torch.dtype = torch.float32
    width: int = 200
    rows: int = 7

    def sizes(self) -> list[int]:
        """An uneven split, in which the second rank has nothing."""
        return [self.rows, 0, self.rows + 3][: self.size]

    def data(self, *shape: int, seed: int = 0) -> torch.Tensor:
        """This rank's numbers on the device."""
        return data(self.rank, *shape, dtype=self.dtype, seed=seed).to(self.device)

    def weight(self) -> torch.Tensor:
        """Of a norm; the same on all ranks."""
        return (1 + data(9, self.width, dtype=self.dtype) / 4).to(self.device)


def of_functions(case: Case) -> Tensors:
    """Results and gradients of Megatron-LM's functions."""
    own, width = case.rows, case.width
    whole, sizes = own * case.size, case.sizes()
    split = {"output_split_sizes": sizes}
    functions: Sequence[tuple[Callable[..., torch.Tensor], int, int, dict[str, Any]]] = (
        (sp.gather_from_sequence_parallel_region, own, width, {}),
        (sp.gather_from_sequence_parallel_region, sizes[case.rank], width, split),
        (
            sp.gather_from_sequence_parallel_region,
            own,
            width,
            {"tensor_parallel_output_grad": False},
        ),
        (sp.reduce_scatter_to_sequence_parallel_region, whole, width, {}),
        (
            sp.reduce_scatter_to_sequence_parallel_region,
            sum(sizes),
            width,
            {"input_split_sizes": sizes},
        ),
        (sp.scatter_to_sequence_parallel_region, whole, width, {}),
        (sp.all_gather_last_dim_from_tensor_parallel_region, own, width, {}),
        (sp.reduce_scatter_last_dim_to_tensor_parallel_region, own, width * case.size, {}),
        (sp.scatter_to_tensor_model_parallel_region, own, width * case.size, {}),
        (sp.gather_from_tensor_model_parallel_region, own, width, {}),
        (sp.copy_to_tensor_model_parallel_region, own, width, {}),
        (sp.reduce_from_tensor_model_parallel_region, own, width, {}),
    )
    results = []
    for function, rows, columns, keywords in functions:
        x = case.data(rows, 2, columns).requires_grad_()
        y = function(x, group=case.group, policy=case.policy, **keywords)
        y.backward(case.data(*y.shape, seed=1))
        results += [y.detach(), x.grad]
    return results


def of_norms(case: Case) -> Tensors:
    """Results of the functions of the norm between two blocks."""
    with torch.no_grad():
        term = case.data(case.rows * case.size, case.width)
        residual, weight = case.data(case.rows, case.width, seed=1), case.weight()
        common = {"group": case.group, "policy": case.policy}
        sums, normed = sp.reduce_scatter_norm(term, residual, weight, EPSILON, **common)
        alone = sp.rms_norm(residual, weight, EPSILON, **common)
        sizes = case.sizes()
        uneven, uneven_normed = sp.reduce_scatter_norm(
            case.data(sum(sizes), case.width, seed=2),
            case.data(sizes[case.rank], case.width, seed=3),
            weight,
            EPSILON,
            input_split_sizes=sizes,
            **common,
        )
        gathered = [sp.gather_normed(n, **common) for n in (normed, alone)]
        return [sums, uneven, *normed, *alone, *uneven_normed, *gathered]


class Block(nn.Module):
    """norm, up, down, residual, norm, up: every way in which rows come to a layer."""

    def __init__(self, case: Case, keep_encoded: bool = True) -> None:
        super().__init__()
        torch.manual_seed(3)
        hidden = 32 * case.size
        common = {"group": case.group, "policy": case.policy}
        ups = [nn.Linear(case.width, hidden) for _ in range(2)]
        down = nn.Linear(hidden, case.width)
        self.up = sp.ColumnParallelLinear(ups[0], keep_encoded=keep_encoded, **common)
        self.down = sp.RowParallelLinear(down, **common)
        self.head = sp.ColumnParallelLinear(ups[1], keep_encoded=keep_encoded, **common)
        self.weight = nn.Parameter(1 + torch.randn(case.width) / 8)
        self.to(case.device, case.dtype)

    def forward(self, x: torch.Tensor, fused: bool) -> torch.Tensor:
        """The same with the norm fused and apart, but for what is rounded in between."""
        normed = sp.rms_norm(x, self.weight, EPSILON, self.up.group, policy=self.up.policy)
        hidden = F.relu(self.up(normed if fused else normed.values))
        if fused:
            return self.head(self.down.into_norm(hidden, x, self.weight, EPSILON)[1])
        return self.head(x + self.down(hidden))


def of_layers(case: Case) -> Tensors:
    """Results and gradients of the split layers, with `Normed` rows and without."""
    results = []
    for fused, keep in ((True, True), (False, True), (False, False)):
        block = Block(case, keep)
        x = case.data(case.rows, case.width).requires_grad_()
        y = block(x, fused)
        y.backward(case.data(*y.shape, seed=1))
        results += [y.detach(), x.grad, *(parameter.grad for parameter in block.parameters())]
    return results
