"""The codec on CPU arrays: numbers to encoded bytes and back.

All functions take CPU torch tensors, NumPy arrays, or anything else with DLPack or the buffer
protocol, of fp32, bf16 or fp16 and of any shape, and return torch tensors. They compute the same
bits on every machine; ``docs/numerics.md`` states them.

The method is that of AGoQ (arXiv 2605.00539): symmetric integer codes in blocks that share one
scale, and sums in fp32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agoq_comm import _C
from agoq_comm._arrays import as_cpu_tensor, encodable_name, output

__all__ = [
    "Encoded",
    "StochasticRounding",
    "decode",
    "decode_accumulate",
    "encode",
    "sum_decode",
    "sum_encode",
]


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
        Element format of the codes, e.g. ``"int8"``.
    block : int
        Elements that share a scale.
    scale : str
        Scale type: ``"bf16"`` or ``"fp32"``.
    """

    data: torch.Tensor
    shape: torch.Size
    dtype: torch.dtype
    format: str = "int8"
    block: int = 128
    scale: str = "bf16"

    def __post_init__(self) -> None:
        if self.data.dtype != torch.uint8 or self.data.dim() != 1 or self.data.is_cuda:
            raise ValueError("Encoded.data must be a 1-D uint8 tensor on the CPU")
        expected = self._codec().encoded_bytes(self.numel())
        if self.data.numel() != expected or not self.data.is_contiguous():
            raise ValueError(
                f"Encoded.data must be {expected} contiguous bytes for shape {tuple(self.shape)} "
                f"in {self.format}/{self.block}/{self.scale}, not {self.data.numel()}"
            )

    def _codec(self, isa: str | None = None) -> _C.Codec:
        return _codec(self.format, self.block, self.scale, isa)

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of `data`."""
        return self.data.numel()

    @property
    def codes(self) -> torch.Tensor:
        """A view of the codes' bytes: int8, 1-D."""
        return self.data[: self.numel()].view(torch.int8)

    @property
    def scales(self) -> torch.Tensor:
        """A view of the scales: bf16 or fp32, one a block."""
        dtype = torch.bfloat16 if self.scale == "bf16" else torch.float32
        return self.data[self._codec().scale_offset(self.numel()) :].view(dtype)


@functools.lru_cache(maxsize=64)
def _codec(format: str, block: int, scale: str, isa: str | None) -> _C.Codec:
    return _C.Codec(format, block, scale, isa)


def _rounding(rounding: StochasticRounding | None) -> _C.Rounding:
    result = _C.Rounding()
    if rounding is not None:
        result.stochastic = True
        result.seed = rounding.seed
        result.call = rounding.call
        result.rank = rounding.rank
        result.stage = rounding.stage
        result.first_element = rounding.first_element
    return result


def encode(
    x: Any,
    *,
    format: str = "int8",
    block: int = 128,
    scale: str = "bf16",
    rounding: StochasticRounding | None = None,
    isa: str | None = None,
) -> Encoded:
    """Encode an array.

    Parameters
    ----------
    x : array_like
        fp32, bf16 or fp16, of any shape; elements are taken in row-major order.
    format : str
        Element format of the codes.
    block : int
        Elements that share a scale: a power of two in [32, 1024].
    scale : {"bf16", "fp32"}
        Scale type.
    rounding : StochasticRounding, optional
        Rounds half to even by default.
    isa : {"scalar", "avx2", "avx512"}, optional
        Kernels to use; the result does not depend on it.

    Returns
    -------
    Encoded
        1 byte an element and one scale a block.

    Raises
    ------
    TypeError
        `x` has another dtype.
    ValueError
        `x` is not dense CPU memory, or the format is none there is.
    """
    x = as_cpu_tensor(x, "x").detach().contiguous()
    codec = _codec(format, block, scale, isa)
    data = torch.empty(codec.encoded_bytes(x.numel()), dtype=torch.uint8)
    codec.encode(
        x.data_ptr(), encodable_name(x, "x"), x.numel(), data.data_ptr(), _rounding(rounding)
    )
    return Encoded(data, x.shape, x.dtype, format, block, scale)


def decode(
    encoded: Encoded,
    *,
    dtype: torch.dtype | None = None,
    out: Any = None,
    isa: str | None = None,
) -> torch.Tensor:
    """Decode to numbers: code times scale, exact in fp32, rounded once to the result's dtype.

    Parameters
    ----------
    encoded : Encoded
        What `encode` or `sum_encode` returned.
    dtype : torch.dtype, optional
        fp32, bf16 or fp16; `encoded.dtype` by default. Ignored where `out` is given.
    out : array_like, optional
        Contiguous memory of `encoded.shape` to decode into.
    isa : str, optional
        See `encode`.

    Returns
    -------
    torch.Tensor
        Of `encoded.shape`. A block that held a NaN or an infinity is all NaN.
    """
    out = output(out, encoded.shape, dtype or encoded.dtype)
    encoded._codec(isa).decode(
        encoded.data.data_ptr(), encoded.numel(), out.data_ptr(), encodable_name(out, "out")
    )
    return out


def decode_accumulate(encoded: Encoded, accumulator: Any, *, isa: str | None = None) -> Any:
    """Add decoded numbers to an fp32 accumulator, in place.

    Parameters
    ----------
    encoded : Encoded
        What is added.
    accumulator : array_like
        fp32, contiguous, of `encoded.shape`.
    isa : str, optional
        See `encode`.

    Returns
    -------
    array_like
        `accumulator`.
    """
    target = output(accumulator, encoded.shape, torch.float32)
    if target.dtype != torch.float32:
        raise TypeError(f"accumulator must be float32, not {target.dtype}")
    encoded._codec(isa).decode_accumulate(
        encoded.data.data_ptr(), encoded.numel(), target.data_ptr()
    )
    return accumulator


@dataclass(frozen=True)
class _Pieces:
    """Arguments of the core's sums, from a list in rank order."""

    like: Encoded
    addresses: list[int]
    own: torch.Tensor | None
    own_rank: int

    @classmethod
    def of(cls, pieces: Sequence[Any]) -> _Pieces:
        encoded = [piece for piece in pieces if isinstance(piece, Encoded)]
        if not encoded:
            raise ValueError("pieces must hold at least one Encoded")
        like = encoded[0]
        for piece in encoded:
            for field in ("shape", "format", "block", "scale"):
                if getattr(piece, field) != getattr(like, field):
                    raise ValueError(
                        f"all pieces must have one {field}, not {getattr(like, field)} and "
                        f"{getattr(piece, field)}"
                    )
        addresses, own, own_rank = [], None, -1
        for rank, piece in enumerate(pieces):
            if isinstance(piece, Encoded):
                addresses.append(piece.data.data_ptr())
                continue
            if own is not None:
                raise ValueError("at most one of the pieces may be numbers; encode the others")
            own, own_rank = as_cpu_tensor(piece, f"pieces[{rank}]").detach().contiguous(), rank
            if own.shape != like.shape:
                raise ValueError(
                    f"pieces[{rank}] has shape {tuple(own.shape)}, the others {tuple(like.shape)}"
                )
            addresses.append(0)
        return cls(like, addresses, own, own_rank)

    def own_arguments(self) -> tuple[int, str, int]:
        if self.own is None:
            return 0, "float32", -1
        return (
            self.own.data_ptr(),
            encodable_name(self.own, f"pieces[{self.own_rank}]"),
            self.own_rank,
        )


def sum_decode(
    pieces: Sequence[Any],
    *,
    factor: float = 1.0,
    dtype: torch.dtype | None = None,
    out: Any = None,
    isa: str | None = None,
) -> torch.Tensor:
    """Sum pieces in fp32, in the order given, and round the sum once.

    Parameters
    ----------
    pieces : sequence of Encoded or array_like
        All of one shape and format. At most one may be numbers, as the owner of a chunk has its
        own piece unencoded.
    factor : float
        The sum is multiplied by it, in fp32.
    dtype : torch.dtype, optional
        Of the result; that of the first `Encoded` by default. Ignored where `out` is given.
    out : array_like, optional
        Contiguous memory of the pieces' shape. May be the memory of the piece that is numbers.
    isa : str, optional
        See `encode`.

    Returns
    -------
    torch.Tensor
        The sum.
    """
    arguments = _Pieces.of(pieces)
    out = output(out, arguments.like.shape, dtype or arguments.like.dtype)
    arguments.like._codec(isa).sum_decode(
        arguments.addresses,
        *arguments.own_arguments(),
        arguments.like.numel(),
        factor,
        out.data_ptr(),
        encodable_name(out, "out"),
    )
    return out


def sum_encode(
    pieces: Sequence[Any],
    *,
    factor: float = 1.0,
    rounding: StochasticRounding | None = None,
    out: Any = None,
    isa: str | None = None,
) -> Encoded:
    """Sum pieces in fp32, in the order given, and encode the sum.

    Parameters
    ----------
    pieces : sequence of Encoded or array_like
        See `sum_decode`.
    factor : float
        The sum is multiplied by it, in fp32, before it is encoded.
    rounding : StochasticRounding, optional
        Rounds half to even by default.
    out : array_like, optional
        Receives the decoded result, in its own dtype: what every holder of the result decodes.
        Contiguous, of the pieces' shape; may be the memory of the piece that is numbers.
    isa : str, optional
        See `encode`.

    Returns
    -------
    Encoded
        The sum.
    """
    arguments = _Pieces.of(pieces)
    like = arguments.like
    target = None if out is None else output(out, like.shape, like.dtype)
    codec = like._codec(isa)
    data = torch.empty(codec.encoded_bytes(like.numel()), dtype=torch.uint8)
    codec.sum_encode(
        arguments.addresses,
        *arguments.own_arguments(),
        like.numel(),
        factor,
        data.data_ptr(),
        0 if target is None else target.data_ptr(),
        "float32" if target is None else encodable_name(target, "out"),
        _rounding(rounding),
    )
    dtype = like.dtype if target is None else target.dtype
    return Encoded(data, like.shape, dtype, like.format, like.block, like.scale)
