"""What stands between two blocks of a transformer, as operators: sum, residual, norm, encoding.

Each is one pass of the core over its rows. Where the core does not sum them (exchange.py says
where) the pass follows the sum; where it does not finish them either, each is what it consists of,
one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from agoq_comm import _C
from agoq_comm._encoded import core_rounding
from agoq_comm._groups import _backend_of
from agoq_comm.sequence_parallel import exchange
from agoq_comm.sequence_parallel.operators import as_rows, part_shape, resolve, rows_of
from agoq_comm.sequence_parallel.rounding import next_rounding
from agoq_comm.sequence_parallel.row_blocks import RowBlocks


def _codec(x: torch.Tensor, group: str, wanted: bool) -> RowBlocks | None:
    """How this rank's rows `x` are encoded for a gather; None where they are not."""
    members = resolve(group)
    numel = x.numel() * members.size()
    if members.size() == 1 or not exchange.quantizes(x, numel, members, wanted and x.dim() > 1):
        return None
    return RowBlocks.of(x.shape[-1], _backend_of(members).options)


def _memory(x: torch.Tensor, codec: RowBlocks | None) -> torch.Tensor:
    rows = x.numel() // x.shape[-1] if x.numel() else 0
    return x.new_empty(0 if codec is None else codec.encoded_bytes(rows), dtype=torch.uint8)


def _normed_apart(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, group: str, codec: RowBlocks | None
) -> tuple[torch.Tensor, torch.Tensor]:
    normed = F.rms_norm(x, [x.shape[-1]], weight.to(x.dtype), epsilon)
    if codec is None:
        return normed, _memory(normed, None)
    return normed, codec.encode(as_rows(normed), next_rounding(resolve(group)))


@torch.library.custom_op("agoq::sp_reduce_scatter_norm", mutates_args=())
def reduce_scatter_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    group: str,
    sizes: Sequence[int] | None,
    quantized: bool,
    encode: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Reduce-scatter plus residual, its RMSNorm, and the norm's encoded bytes, if any."""
    members, rows = resolve(group), as_rows(x)
    exchange.split_rows(x.shape[0], members, sizes)
    shape = part_shape(x, group, sizes)
    if list(residual.shape) != shape:
        raise ValueError(
            f"agoq_comm: the residual is {list(residual.shape)}, but this rank's part of the sum "
            f"is {shape}."
        )
    codec = _codec(residual, group, encode)
    counts = rows_of(sizes, x)
    part = None
    if not exchange.core_sums_rows(rows, members, quantized):
        pending = exchange.start_reduce_scatter(rows, members, counts, quantized, async_op=False)
        part = pending.wait()
        if not exchange.core_has_rows(rows, members):
            sums = part.view(residual.shape) + residual
            return sums, *_normed_apart(sums, weight, epsilon, group, codec)
    backend = _backend_of(members)
    residual = residual.contiguous()
    sums, normed = torch.empty_like(residual), torch.empty_like(residual)
    encoded = _memory(residual, codec)
    epilogue = _C.RowEpilogue(
        residual=as_rows(residual),
        weight=weight.float().contiguous(),
        epsilon=epsilon,
        normed=as_rows(normed),
        encoded=None if codec is None else encoded,
        rounding=core_rounding(None if codec is None else next_rounding(members)),
    )
    if part is None:
        split = exchange.split_rows(rows.shape[0], members, counts)
        work = backend.reduce_scatter_rows(
            as_rows(sums), rows, split, quantized, epilogue, async_op=False
        )
        if work is not None:
            work.wait()
    else:
        backend.finish_rows(part, as_rows(sums), epilogue)
    return sums, normed, encoded


def _reduce_scatter_norm_like(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    group: str,
    sizes: Sequence[int] | None,
    quantized: bool,
    encode: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    part = x.new_empty(part_shape(x, group, sizes))
    return part, torch.empty_like(part), _memory(part, _codec(part, group, encode))


torch.library.register_fake("agoq::sp_reduce_scatter_norm", _reduce_scatter_norm_like)


@torch.library.custom_op("agoq::sp_rms_norm", mutates_args=())
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, group: str, encode: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of this rank's rows, and its encoded bytes, if any."""
    members, x = resolve(group), x.contiguous()
    codec = _codec(x, group, encode)
    if not exchange.core_has_rows(as_rows(x), members):
        return _normed_apart(x, weight, epsilon, group, codec)
    normed, encoded = torch.empty_like(x), _memory(x, codec)
    epilogue = _C.RowEpilogue(
        weight=weight.float().contiguous(),
        epsilon=epsilon,
        normed=as_rows(normed),
        encoded=None if codec is None else encoded,
        rounding=core_rounding(None if codec is None else next_rounding(members)),
    )
    _backend_of(members).finish_rows(as_rows(x), None, epilogue)
    return normed, encoded


def _rms_norm_like(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, group: str, encode: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), _memory(x, _codec(x, group, encode))


torch.library.register_fake("agoq::sp_rms_norm", _rms_norm_like)


@torch.library.custom_op("agoq::sp_gather_encoded", mutates_args=())
def gather_encoded(x: torch.Tensor, encoded: torch.Tensor, group: str) -> torch.Tensor:
    """All-gather along the first dimension what `encoded` holds of `x` on each rank."""
    members, rows = resolve(group), as_rows(x)
    codec = RowBlocks.of(rows.shape[1], _backend_of(members).options)
    counts = [rows.shape[0]] * members.size()
    pending = exchange.start_gather_encoded(
        encoded, codec, counts, x.dtype, members, async_op=False
    )
    whole = pending.wait()
    return whole.view(-1, *x.shape[1:])


def _gather_encoded_like(x: torch.Tensor, encoded: torch.Tensor, group: str) -> torch.Tensor:
    return x.new_empty(x.shape[0] * resolve(group).size(), *x.shape[1:])


torch.library.register_fake("agoq::sp_gather_encoded", _gather_encoded_like)
