"""The collectives of sequence parallelism on matrices of rows, with blocks that respect the rows.

A gather or reduce-scatter is one call of the core, which keeps to the rows and is quantized as the
caller wants. Where the core has none (types that are never quantized, an all-reduce, a sum on a
device that is exact, a device or a group that the kernels do not serve), there are three ways to
travel, chosen from what all ranks see alike:

direct
    One call of the backend, which quantizes or not as it would by itself. Its blocks run through
    the flat buffer, and where a row is a whole number of blocks these are the blocks of the rows.
encoded
    Encoded here and sent as bytes: for rows that end in a short block, and for collectives that the
    group's options do not quantize but the policy does. Rounded to nearest, the result has the
    bits that direct has by the flat algorithm; but for an all-reduce of several blocks a row whose
    rows the ranks cannot share equally: it deals whole rows to owners where the backend deals
    blocks, and an owner's own values are not encoded before the sum.
bytes
    Exact on a group that would quantize: the values travel as bytes, and are summed here in fp32
    and in rank order.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from agoq_comm import _C
from agoq_comm._encoded import core_rounding
from agoq_comm._groups import _backend_of
from agoq_comm._single_tensor import all_gather_single, reduce_scatter_single
from agoq_comm.sequence_parallel.rounding import next_rounding
from agoq_comm.sequence_parallel.row_blocks import RowBlocks

_QUANTIZABLE = (torch.float32, torch.bfloat16, torch.float16)


class _Way(enum.Enum):
    DIRECT = enum.auto()
    ENCODED = enum.auto()
    BYTES = enum.auto()


@dataclass(frozen=True)
class Pending:
    """A collective under way, or one that has ended. `wait` returns its result, once."""

    work: Any | None
    finish: Callable[[], torch.Tensor]

    def wait(self) -> torch.Tensor:
        """Wait for the peers and return the result."""
        if self.work is not None:
            self.work.wait()
        return self.finish()


def quantizes(x: torch.Tensor, numel: int, group: dist.ProcessGroup, wanted: bool) -> bool:
    """Tell whether a call that moves `numel` elements like `x` is to be quantized."""
    options = _backend_of(group).options
    # As in the core, where a call of no elements has nothing to encode whatever min_numel is.
    return wanted and x.dtype in _QUANTIZABLE and numel >= max(options.min_numel, 1)


def core_has_rows(x: torch.Tensor, group: dist.ProcessGroup) -> bool:
    """Tell whether the core gathers and finishes rows like those of the matrix `x`."""
    return x.dtype in _QUANTIZABLE and x.shape[1] > 0 and _backend_of(group).serves_rows(x.device)


def core_sums_rows(x: torch.Tensor, group: dist.ProcessGroup, wanted: bool) -> bool:
    """Tell whether the core reduce-scatters the rows of `x`: on a device, none that are exact."""
    quantized = x.device.type == "cpu" or quantizes(x, x.numel(), group, wanted)
    return quantized and core_has_rows(x, group)


def encode(x: torch.Tensor, codec: RowBlocks, group: dist.ProcessGroup) -> torch.Tensor:
    """Encode a matrix of rows that is to travel in the group."""
    rounding = next_rounding(group)
    if not core_has_rows(x, group):
        return codec.encode(x, rounding)
    data = x.new_empty(codec.encoded_bytes(x.shape[0]), dtype=torch.uint8)
    epilogue = _C.RowEpilogue(encoded=data, rounding=core_rounding(rounding))
    _backend_of(group).finish_rows(x.contiguous(), None, epilogue)
    return data


def _way(
    operation: str, x: torch.Tensor, numel: int, group: dist.ProcessGroup, wanted: bool
) -> _Way:
    options = _backend_of(group).options
    wanted = quantizes(x, numel, group, wanted)
    by_backend = quantizes(x, numel, group, operation in options.quantize)
    whole_blocks = x.shape[-1] % options.block == 0
    if wanted:
        return _Way.DIRECT if by_backend and whole_blocks else _Way.ENCODED
    return _Way.BYTES if by_backend else _Way.DIRECT


def start_gather(
    x: torch.Tensor,
    group: dist.ProcessGroup,
    sizes: Sequence[int] | None,
    wanted: bool,
    *,
    async_op: bool = True,
) -> Pending:
    """All-gather rows: `sizes` of each rank, or as many from all as this rank has.

    Who waits at once says so by `async_op`: the core's call then runs on the caller's thread, which
    spares two threads the waking of each other.
    """
    x = x.contiguous()
    rows = gathered_rows(x.shape[0], group, sizes)
    if core_has_rows(x, group):
        whole = x.new_empty(sum(rows), x.shape[1])
        call = _backend_of(group).all_gather_rows(whole, x, rows, wanted, async_op)
        return Pending(call, lambda: whole)
    way = _way("all_gather", x, sum(rows) * x.shape[1], group, wanted)
    if way is _Way.ENCODED:
        codec = RowBlocks.of(x.shape[1], _backend_of(group).options)
        data = codec.encode(x, next_rounding(group))
        return start_gather_encoded(data, codec, rows, x.dtype, group, async_op=async_op)
    gathered = x.new_empty(sum(rows), x.shape[1])
    source, target = x, gathered
    if way is _Way.BYTES:
        source, target = x.view(torch.uint8), gathered.view(torch.uint8)
    if sizes is None:
        work = all_gather_single(target, source, group=group, async_op=True)
    else:
        parts = list(target.split_with_sizes(rows))
        work = dist.all_gather(parts, source, group=group, async_op=True)
    return Pending(work, lambda: gathered)


def start_gather_encoded(
    data: torch.Tensor,
    codec: RowBlocks,
    rows: Sequence[int],
    dtype: torch.dtype,
    group: dist.ProcessGroup,
    *,
    async_op: bool = True,
) -> Pending:
    """All-gather rows that are encoded already, by sending their bytes as they are."""
    gathered = data.new_empty(sum(rows), codec.width, dtype=dtype)
    if core_has_rows(gathered, group):
        call = _backend_of(group).all_gather_encoded_rows(gathered, data, rows, async_op)
        return Pending(call, lambda: gathered)
    lengths = [codec.encoded_bytes(n) for n in rows]
    received = data.new_empty(sum(lengths))
    parts = received.split_with_sizes(lengths)
    if len(set(rows)) == 1:
        work = all_gather_single(received, data, group=group, async_op=True)
    else:
        work = dist.all_gather(list(parts), data, group=group, async_op=True)

    def finish() -> torch.Tensor:
        for out, part in zip(gathered.split_with_sizes(list(rows)), parts, strict=True):
            codec.decode_into(out, part)
        return gathered

    return Pending(work, finish)


def start_reduce_scatter(
    x: torch.Tensor,
    group: dist.ProcessGroup,
    sizes: Sequence[int] | None,
    wanted: bool,
    *,
    async_op: bool = True,
) -> Pending:
    """Sum rows over the ranks; rank r keeps the r-th part, of `sizes[r]` rows or an equal share."""
    x = x.contiguous()
    rank = group.rank()
    rows = split_rows(x.shape[0], group, sizes)
    if core_sums_rows(x, group, wanted):
        part = x.new_empty(rows[rank], x.shape[1])
        call = _backend_of(group).reduce_scatter_rows(
            part, x, rows, wanted, _C.RowEpilogue(), async_op
        )
        return Pending(call, lambda: part)
    way = _way("reduce_scatter", x, x.numel(), group, wanted)
    if way is _Way.DIRECT:
        result = x.new_empty(rows[rank], x.shape[1])
        if sizes is None:
            work = reduce_scatter_single(result, x, group=group, async_op=True)
        else:
            work = dist.reduce_scatter(
                result, list(x.split_with_sizes(rows)), group=group, async_op=True
            )
        return Pending(work, lambda: result)
    own = x.split_with_sizes(rows)[rank]
    if way is _Way.BYTES:
        pieces, work = _start_exact_pieces(x, rows, group)
        return Pending(work, lambda: _sum_exactly(pieces))
    codec = RowBlocks.of(x.shape[1], _backend_of(group).options)
    pieces, work = _start_encoded_pieces(x, rows, codec, group)
    return Pending(work, lambda: codec.sum_decode(pieces, own, rank))


def all_reduce(x: torch.Tensor, group: dist.ProcessGroup, wanted: bool) -> torch.Tensor:
    """Sum over the ranks; all get the same bits. Takes and returns a matrix of rows."""
    way = _way("all_reduce", x, x.numel(), group, wanted)
    if way is _Way.DIRECT:
        result = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(result, group=group)
        return result
    x = x.contiguous()
    rank, size = group.rank(), group.size()
    rows = [len(part) for part in torch.arange(x.shape[0]).tensor_split(size)]
    own = x.split_with_sizes(rows)[rank]
    if way is _Way.BYTES:
        reduced = start_reduce_scatter(x, group, rows, False, async_op=False).wait()
        return start_gather(reduced, group, rows, False, async_op=False).wait()
    codec = RowBlocks.of(x.shape[1], _backend_of(group).options)
    pieces, work = _start_encoded_pieces(x, rows, codec, group)
    work.wait()
    data = codec.sum_encode(pieces, own, rank, next_rounding(group))
    return start_gather_encoded(data, codec, rows, x.dtype, group, async_op=False).wait()


def _start_encoded_pieces(
    x: torch.Tensor, rows: list[int], codec: RowBlocks, group: dist.ProcessGroup
) -> tuple[list[torch.Tensor], Any]:
    """Send each rank its rows, encoded; the own ones stay. Returns where the pieces will be."""
    rank = group.rank()
    outgoing = [
        x.new_empty(0, dtype=torch.uint8)
        if peer == rank
        else codec.encode(part, next_rounding(group))
        for peer, part in enumerate(x.split_with_sizes(rows))
    ]
    length = codec.encoded_bytes(rows[rank])
    incoming = [0 if peer == rank else length for peer in range(group.size())]
    received = outgoing[rank].new_empty(sum(incoming))
    work = dist.all_to_all_single(
        received,
        torch.cat(outgoing),
        output_split_sizes=incoming,
        input_split_sizes=[len(data) for data in outgoing],
        group=group,
        async_op=True,
    )
    return list(received.split_with_sizes(incoming)), work


def _start_exact_pieces(
    x: torch.Tensor, rows: list[int], group: dist.ProcessGroup
) -> tuple[list[torch.Tensor], Any]:
    """Send each rank its rows as they are."""
    received = x.new_empty(group.size() * rows[group.rank()], x.shape[1])
    shares = [rows[group.rank()]] * group.size()
    work = dist.all_to_all_single(
        received, x, output_split_sizes=shares, input_split_sizes=rows, group=group, async_op=True
    )
    return list(received.split_with_sizes(shares)), work


def _sum_exactly(pieces: list[torch.Tensor]) -> torch.Tensor:
    """In fp32 and in rank order, as the core sums."""
    total = pieces[0].float()
    for piece in pieces[1:]:
        total = total + piece.float()
    return total.to(pieces[0].dtype)


def gathered_rows(own: int, group: dist.ProcessGroup, sizes: Sequence[int] | None) -> list[int]:
    """Rows of each rank: `sizes`, or as many as this one has."""
    if sizes is None:
        return [own] * group.size()
    _require_one_size_a_rank(group, sizes)
    if sizes[group.rank()] != own:
        raise ValueError(
            f"agoq_comm: output_split_sizes says {sizes[group.rank()]} for this rank "
            f"({group.rank()}), but the first dimension of its tensor is {own}."
        )
    return list(sizes)


def split_rows(rows: int, group: dist.ProcessGroup, sizes: Sequence[int] | None) -> list[int]:
    """Rows of each rank: `sizes`, or equal shares."""
    if sizes is None:
        if rows % group.size():
            raise ValueError(
                f"agoq_comm: the first dimension, {rows}, is no multiple of the {group.size()} "
                "ranks; pass the split sizes for an uneven split."
            )
        return [rows // group.size()] * group.size()
    _require_one_size_a_rank(group, sizes)
    if sum(sizes) != rows:
        raise ValueError(
            f"agoq_comm: the split sizes sum to {sum(sizes)}, but the first dimension is {rows}."
        )
    return list(sizes)


def _require_one_size_a_rank(group: dist.ProcessGroup, sizes: Sequence[int]) -> None:
    if len(sizes) != group.size() or min(sizes) < 0:
        raise ValueError(
            f"agoq_comm: the split sizes are {list(sizes)}, but must be one for each of the "
            f"{group.size()} ranks and none negative."
        )
