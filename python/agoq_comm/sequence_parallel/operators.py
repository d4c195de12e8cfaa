"""The exchanges as operators of torch, opaque to its compiler.

A compiled graph holds one node for each, with a group's name where eager code holds the group; what
happens inside (encoding, sending, decoding) is not traced. Operators know no gradients: the
functions in `regions` say what the way back is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group

from agoq_comm.sequence_parallel import exchange


@torch.library.custom_op("agoq::sp_gather", mutates_args=())
def gather(
    x: torch.Tensor, group: str, sizes: Sequence[int] | None, quantized: bool
) -> torch.Tensor:
    """All-gather along the first dimension."""
    members, rows = resolve(group), as_rows(x)
    # The exchange would refuse rows of a matrix, which the caller has not seen.
    exchange.gathered_rows(x.shape[0], members, sizes)
    whole = exchange.start_gather(
        rows, members, rows_of(sizes, x), quantized and x.dim() > 1, async_op=False
    ).wait()
    return whole.view(_gathered_shape(x, group, sizes))


def _gathered_shape(x: torch.Tensor, group: str, sizes: Sequence[int] | None) -> list[int]:
    first = x.shape[0] * resolve(group).size() if sizes is None else sum(sizes)
    return [first, *x.shape[1:]]


def _gather_like(
    x: torch.Tensor, group: str, sizes: Sequence[int] | None, quantized: bool
) -> torch.Tensor:
    return x.new_empty(_gathered_shape(x, group, sizes))


torch.library.register_fake("agoq::sp_gather", _gather_like)


@torch.library.custom_op("agoq::sp_reduce_scatter", mutates_args=())
def reduce_scatter(
    x: torch.Tensor, group: str, sizes: Sequence[int] | None, quantized: bool
) -> torch.Tensor:
    """Sum over the ranks and keep this rank's part of the first dimension."""
    members, rows = resolve(group), as_rows(x)
    exchange.split_rows(x.shape[0], members, sizes)
    part = exchange.start_reduce_scatter(
        rows, members, rows_of(sizes, x), quantized and x.dim() > 1, async_op=False
    ).wait()
    return part.view(part_shape(x, group, sizes))


def part_shape(x: torch.Tensor, group: str, sizes: Sequence[int] | None) -> list[int]:
    """Shape of this rank's part of the first dimension."""
    members = resolve(group)
    first = x.shape[0] // members.size() if sizes is None else sizes[members.rank()]
    return [first, *x.shape[1:]]


def _reduce_scatter_like(
    x: torch.Tensor, group: str, sizes: Sequence[int] | None, quantized: bool
) -> torch.Tensor:
    return x.new_empty(part_shape(x, group, sizes))


torch.library.register_fake("agoq::sp_reduce_scatter", _reduce_scatter_like)


@torch.library.custom_op("agoq::sp_all_reduce", mutates_args=())
def all_reduce(x: torch.Tensor, group: str, quantized: bool) -> torch.Tensor:
    """Sum over the ranks."""
    whole = exchange.all_reduce(as_rows(x), resolve(group), quantized and x.dim() > 1)
    return whole.view(x.shape)


def _all_reduce_like(x: torch.Tensor, group: str, quantized: bool) -> torch.Tensor:
    return x.new_empty(x.shape)


torch.library.register_fake("agoq::sp_all_reduce", _all_reduce_like)


def resolve(group: str) -> dist.ProcessGroup:
    """Return the group of that name."""
    return _resolve_process_group(group)  # type: ignore[arg-type]


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """View as a matrix whose rows run along the last dimension.

    A vector has no such dimension beside the one that ranks share: it is a column.
    """
    if x.dim() == 0:
        raise ValueError("agoq_comm: a tensor without dimensions has no rows to gather or scatter.")
    width = x.shape[-1] if x.dim() > 1 else 1
    return x.contiguous().view(math.prod(x.shape[:-1]) if x.dim() > 1 else x.shape[0], width)


def rows_of(sizes: Sequence[int] | None, x: torch.Tensor) -> list[int] | None:
    """Convert sizes along the first dimension to rows of the matrix."""
    return None if sizes is None else [size * math.prod(x.shape[1:-1]) for size in sizes]
