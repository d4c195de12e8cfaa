"""Quantizing as operators of torch, opaque to its compiler: one node each in a compiled graph.

They know no gradients: a stored activation is data, and who differentiates through a rounding says
how (`agoq_comm.activation.compress` does, by storing beside the graph).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agoq_comm import codec
from agoq_comm.activation.formats import Format


@torch.library.custom_op("agoq::quantize", mutates_args=(), device_types=("cpu", "cuda"))
def quantize(x: torch.Tensor, format: str, block: int, scale: str) -> torch.Tensor:
    """Encode the elements, in row-major order, to bytes: codes, then scales."""
    # Bits that conjugate or negate are not in the memory which the codec reads.
    return codec.encode(x.resolve_neg(), format=format, block=block, scale=scale).data


def _quantize_like(x: torch.Tensor, format: str, block: int, scale: str) -> torch.Tensor:
    size = Format(format, block, scale).encoded_bytes(x.numel())
    return x.new_empty([size], dtype=torch.uint8)


torch.library.register_fake("agoq::quantize", _quantize_like)


@torch.library.custom_op("agoq::dequantize", mutates_args=(), device_types=("cpu", "cuda"))
def dequantize(
    data: torch.Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
    format: str,
    block: int,
    scale: str,
) -> torch.Tensor:
    """Decode bytes to a contiguous tensor."""
    return codec.decode(codec.Encoded(data, torch.Size(shape), dtype, format, block, scale))


def _dequantize_like(
    data: torch.Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
    format: str,
    block: int,
    scale: str,
) -> torch.Tensor:
    return data.new_empty(shape, dtype=dtype)


torch.library.register_fake("agoq::dequantize", _dequantize_like)
