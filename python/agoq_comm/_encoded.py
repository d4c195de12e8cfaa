"""Encoded bytes with what it takes to decode them, and the core's kernels for where they are."""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from agoq_comm import _C
from agoq_comm._cuda import caller_stream


@dataclass(frozen=True)
class StochasticRounding:
    """Rounding up with a probability equal to the distance: unbiased, and repeatable.

    Philox4x32-10 counters are keyed by all the fields, so the same fields give the same bytes.

    Parameters
    ----------
    seed : int
        In [0, 2**64). A call that must be independent of another one differs in some field.
    call, rank, stage : int
        In [0, 2**32). Free to choose; collectives count their calls, pass their rank, and use
        stage 1 for the reduced chunk.
    first_element : int
        Index of the first element within the whole buffer, for a buffer encoded in parts.
    """

    seed: int
    call: int = 0
    rank: int = 0
    stage: int = 0
    first_element: int = 0


@dataclass(frozen=True)
class Encoded:
    """Encoded bytes, and what it takes to decode them.

    Parameters
    ----------
    data : torch.Tensor
        uint8, 1-D: the codes of all elements, 0 to 3 zero bytes, then one scale a block.
    shape : torch.Size
        Of the numbers.
    dtype : torch.dtype
        Of the numbers, before they were encoded; `decode` returns it unless asked for another.
    format : str
        Element format of the codes: ``"int8"``, ``"fp4"``, ``"e2m3"``, ``"int4"`` or ``"int6"``.
    block : int
        Elements that share a scale.
    scale : str
        Scale type: ``"bf16"`` or ``"fp32"``.
    namespace : module, optional
        Array library of what is decoded; None for torch.
    """

    data: torch.Tensor
    shape: torch.Size
    dtype: torch.dtype
    format: str = "int8"
    block: int = 128
    scale: str = "bf16"
    namespace: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.data.dtype != torch.uint8 or self.data.dim() != 1:
            raise ValueError("Encoded.data must be a 1-D uint8 tensor")
        expected = cpu_codec(self.format, self.block, self.scale, None).encoded_bytes(self.numel())
        if self.data.numel() != expected or not self.data.is_contiguous():
            raise ValueError(
                f"Encoded.data must be {expected} contiguous bytes for shape {tuple(self.shape)} "
                f"in {self.format}/{self.block}/{self.scale}, not {self.data.numel()}"
            )

    def on_stream(self, stream: Any) -> AbstractContextManager[int]:
        """Enter the stream of the call's caller; see `agoq_comm._cuda.caller_stream`."""
        return caller_stream(self.data, stream, self.namespace)

    def kernels(self, isa: str | None, stream: int) -> _C.Codec | _C.CudaCodec:
        """Return the functions for this format and device; `stream` is a handle."""
        return kernels(self.data.device, self.format, self.block, self.scale, isa, stream)

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of `data`."""
        return self.data.numel()

    @property
    def codes(self) -> torch.Tensor:
        """A view of the codes, 1-D: int8 for that format, for the others uint8, packed."""
        codec = cpu_codec(self.format, self.block, self.scale, None)
        bits = 8 * codec.scale_offset(self.block) // self.block
        codes = self.data[: -(-self.numel() * bits // 8)]
        return codes.view(torch.int8) if self.format == "int8" else codes

    @property
    def scales(self) -> torch.Tensor:
        """A view of the scales: bf16 or fp32, one a block."""
        dtype = torch.bfloat16 if self.scale == "bf16" else torch.float32
        codec = cpu_codec(self.format, self.block, self.scale, None)
        return self.data[codec.scale_offset(self.numel()) :].view(dtype)


@functools.lru_cache(maxsize=64)
def cpu_codec(format: str, block: int, scale: str, isa: str | None) -> _C.Codec:
    return _C.Codec(format, block, scale, isa)


def kernels(
    device: torch.device, format: str, block: int, scale: str, isa: str | None, stream: int
) -> _C.Codec | _C.CudaCodec:
    if device.type != "cuda":
        return cpu_codec(format, block, scale, isa)
    if isa is not None:
        raise ValueError(f"isa is {isa!r}, which is for CPU memory; this is on {device}")
    return _C.CudaCodec(format, block, scale, stream)


def core_rounding(rounding: StochasticRounding | None) -> _C.Rounding:
    result = _C.Rounding()
    if rounding is not None:
        result.stochastic = True
        result.seed = rounding.seed
        result.call = rounding.call
        result.rank = rounding.rank
        result.stage = rounding.stage
        result.first_element = rounding.first_element
    return result
