"""How far a reduction is from the truth, and how far it may be."""

from __future__ import annotations

import torch
import torch.distributed as dist

# Relative L2 error that the numeric contract allows on normally distributed numbers, any number of
# ranks: int8 in blocks of 128 with bf16 scales gives .0080 for two ranks and .0092 for 64.
_QUANTIZED_BOUND = 0.0100


def exact_sum(values: torch.Tensor) -> torch.Tensor:
    """Sum over the ranks in fp64, on the host, by the default group."""
    total = values.detach().cpu().double()
    dist.all_reduce(total)
    return total


def gathered(values: torch.Tensor) -> torch.Tensor:
    """Collect the ranks' values in fp64, on the host, by the default group: one row a rank."""
    own = values.detach().cpu().double()
    rows = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, own)
    return torch.stack(rows)


def relative_error(result: torch.Tensor, truth: torch.Tensor) -> float:
    """L2 norm of the difference over the norm of the truth."""
    difference = result.cpu().double().sub_(truth)
    return (difference.norm() / truth.norm()).item()


def error_bound(dtype: torch.dtype, ranks: int, quantized: bool) -> float:
    """Largest relative L2 error that passes validation."""
    # Any order of adding p numbers errs by less than p roundings, each half a unit or less.
    exact = ranks * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return exact + (_QUANTIZED_BOUND if quantized else 0.0)
