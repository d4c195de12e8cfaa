"""Numbers as encoded bytes and back, for memory: what `encode` and `decode` are for the wire."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from agoq_comm.activation import operators
from agoq_comm.activation.formats import Format

QUANTIZABLE = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Packed:
    """Encoded bytes of a tensor, and what it takes to decode them.

    Immutable; any thread may read it.

    Parameters
    ----------
    data : torch.Tensor
        uint8, 1-D, on the device of the numbers: codes of all elements, then one scale a block.
    shape : torch.Size
        Of the numbers. They are encoded in row-major order and blocks run through that order, so a
        block crosses rows whose length is no multiple of it; only the last one may be short.
    dtype : torch.dtype
        Of the numbers; `dequantize` returns it.
    format : Format
        Of the codes.
    """

    data: torch.Tensor
    shape: torch.Size
    dtype: torch.dtype
    format: Format

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self.data.numel()

    @property
    def original_nbytes(self) -> int:
        """Bytes that the numbers took."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def scale_nbytes(self) -> int:
        """Bytes of `nbytes` that are scales."""
        return self.format.scale_bytes(math.prod(self.shape))


def quantize(x: torch.Tensor, fmt: str | Format = "fp4/128") -> Packed:
    """Encode a tensor.

    Parameters
    ----------
    x : torch.Tensor
        fp32, bf16 or fp16, dense, on a CPU or a CUDA device, of any shape and stride.
    fmt : str or Format
        ``"fp4"``, ``"e2m3"``, ``"int8"``, ``"int6"`` or ``"int4"``, where wanted with the block
        length: ``"fp4/64"``.

    Returns
    -------
    Packed
        Shares no memory with `x`, and no gradient flows to it.

    Raises
    ------
    TypeError
        `x` has another dtype.
    ValueError
        There is no such format.
    """
    if x.dtype not in QUANTIZABLE:
        raise TypeError(f"x is {x.dtype}; float32, bfloat16 and float16 are quantized")
    format = Format.parse(fmt)
    data = operators.quantize(x.detach(), format.element, format.block, format.scale)
    return Packed(data, x.shape, x.dtype, format)


def dequantize(packed: Packed) -> torch.Tensor:
    """Decode: contiguous, of the shape and dtype of what was quantized."""
    format = packed.format
    return operators.dequantize(
        packed.data, packed.shape, packed.dtype, format.element, format.block, format.scale
    )
