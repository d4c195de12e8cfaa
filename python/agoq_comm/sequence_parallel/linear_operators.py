"""The column-parallel layer as operators: its collectives run beside its matrix products.

The way back of one layer, issued and awaited so that each collective has a product to hide behind::

    gather the input ......... | wait
        grad of the whole input = grad @ weight
                               | reduce-scatter that ............. | wait
                                   grad of the weight = grad^T @ input

An input that was sent encoded is kept as the bytes that were sent, a quarter of fp32, and these
bytes are sent again: both ways multiply with the same bits, and nothing is encoded twice.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

from agoq_comm._groups import _backend_of
from agoq_comm.sequence_parallel import exchange
from agoq_comm.sequence_parallel.operators import as_rows, resolve
from agoq_comm.sequence_parallel.row_blocks import RowBlocks


def _codec_to_keep(x: torch.Tensor, group: str, quantized: bool, keep: bool) -> RowBlocks | None:
    """How to encode an input that is kept encoded; None for one that is kept as it is."""
    members = resolve(group)
    wanted = keep and quantized and x.dim() > 1
    if not exchange.quantizes(x, x.numel() * members.size(), members, wanted):
        return None
    return RowBlocks.of(x.shape[-1], _backend_of(members).options)


@torch.library.custom_op("agoq::sp_column_linear", mutates_args=())
def column_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: str,
    quantized: bool,
    keep: bool,
    encoded: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gather along the first dimension and multiply.

    `encoded` are the bytes of this rank's part where there are some already. Returns the product,
    and bytes made here, or none where the part is not to be kept encoded or came so.
    """
    members, rows = resolve(group), as_rows(x)
    codec = _codec_to_keep(x, group, quantized, keep)
    kept = x.new_empty(0, dtype=torch.uint8)
    if encoded is not None:
        codec = RowBlocks.of(rows.shape[1], _backend_of(members).options)
        counts = [rows.shape[0]] * members.size()
        pending = exchange.start_gather_encoded(
            encoded, codec, counts, x.dtype, members, async_op=False
        )
    elif codec is None:
        pending = exchange.start_gather(rows, members, None, quantized, async_op=False)
    else:
        kept = exchange.encode(rows, codec, members)
        counts = [rows.shape[0]] * members.size()
        pending = exchange.start_gather_encoded(
            kept, codec, counts, x.dtype, members, async_op=False
        )
    whole = pending.wait().view(-1, *x.shape[1:])
    return F.linear(whole, weight, bias), kept


def _column_linear_like(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: str,
    quantized: bool,
    keep: bool,
    encoded: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    codec = _codec_to_keep(x, group, quantized, keep) if encoded is None else None
    rows = x.numel() // x.shape[-1] if x.numel() else 0
    kept = 0 if codec is None else codec.encoded_bytes(rows)
    first = x.shape[0] * resolve(group).size()
    return (
        x.new_empty(first, *x.shape[1:-1], weight.shape[0]),
        x.new_empty(kept, dtype=torch.uint8),
    )


torch.library.register_fake("agoq::sp_column_linear", _column_linear_like)


@torch.library.custom_op("agoq::sp_column_linear_backward", mutates_args=())
def column_linear_backward(
    grad: torch.Tensor,
    saved: torch.Tensor | None,
    weight: torch.Tensor,
    group: str,
    forward: bool,
    backward: bool,
    wants_input: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of this rank's part of the input, and of the weight; empty where not wanted.

    `saved` is the part as it was, or its encoded bytes; None where the weight is frozen.
    """
    members, grad_rows = resolve(group), as_rows(grad)
    gather = scatter = None
    grad_x, grad_weight = grad.new_empty(0), weight.new_empty(0)
    if saved is not None:
        gather = _start_gather_again(saved, grad_rows, weight.shape[1], members, forward)
    if wants_input:
        grad_whole = torch.matmul(grad_rows, weight)
    whole = None if gather is None else gather.wait()
    if wants_input:
        scatter = exchange.start_reduce_scatter(grad_whole, members, None, backward)
    if whole is not None:
        grad_weight = torch.matmul(grad_rows.t(), whole)
    if scatter is not None:
        grad_x = scatter.wait().view(_part_shape(grad, weight, members))
    return grad_x, grad_weight


def _start_gather_again(
    saved: torch.Tensor,
    grad_rows: torch.Tensor,
    width: int,
    group: dist.ProcessGroup,
    quantized: bool,
) -> exchange.Pending:
    if saved.dtype != torch.uint8:
        return exchange.start_gather(as_rows(saved), group, None, quantized)
    codec = RowBlocks.of(width, _backend_of(group).options)
    counts = [grad_rows.shape[0] // group.size()] * group.size()
    return exchange.start_gather_encoded(saved, codec, counts, grad_rows.dtype, group)


def _part_shape(grad: torch.Tensor, weight: torch.Tensor, group: dist.ProcessGroup) -> list[int]:
    return [grad.shape[0] // group.size(), *grad.shape[1:-1], weight.shape[1]]


def _column_linear_backward_like(
    grad: torch.Tensor,
    saved: torch.Tensor | None,
    weight: torch.Tensor,
    group: str,
    forward: bool,
    backward: bool,
    wants_input: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    part = _part_shape(grad, weight, resolve(group)) if wants_input else [0]
    return grad.new_empty(part), weight.new_empty([0] if saved is None else weight.shape)


torch.library.register_fake("agoq::sp_column_linear_backward", _column_linear_backward_like)
