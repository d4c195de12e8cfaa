"""The codec on arrays: numbers to encoded bytes and back.

All functions take torch tensors, NumPy arrays, and anything else with DLPack, the buffer protocol
or ``__cuda_array_interface__`` (CuPy, JAX, Numba), of fp32, bf16 or fp16 and of any shape. They
compute the same bits on every machine and device; ``docs/numerics.md`` states them.

Results are arrays of the library that the numbers came from, where it follows the array API and has
the type; else torch tensors. What is on a CUDA device stays there: kernels are put on the caller's
current stream, or on the one that `stream` names, and the call returns at once.

The method is that of AGoQ (arXiv 2605.00539): symmetric codes in blocks that share one scale, and
sums in fp32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agoq_comm._arrays import as_array, as_tensor, encodable_name, namespace_of, output
from agoq_comm._cuda import caller_stream
from agoq_comm._encoded import Encoded, StochasticRounding, core_rounding, cpu_codec

__all__ = [
    "Encoded",
    "StochasticRounding",
    "decode",
    "decode_accumulate",
    "encode",
    "reduce_encode",
    "sum_decode",
    "sum_encode",
]


def encode(
    x: Any,
    *,
    format: str = "int8",
    block: int = 128,
    scale: str = "bf16",
    rounding: StochasticRounding | None = None,
    out: Encoded | None = None,
    isa: str | None = None,
    stream: Any = None,
) -> Encoded:
    """Encode an array.

    Parameters
    ----------
    x : array_like
        fp32, bf16 or fp16, of any shape; elements are taken in row-major order.
    format : {"int8", "fp4", "e2m3", "int4", "int6"}
        Element format of the codes; ``docs/numerics.md`` defines them.
    block : int
        Elements that share a scale: a power of two in [32, 1024].
    scale : {"bf16", "fp32"}
        Scale type.
    rounding : StochasticRounding, optional
        Rounds half to even by default.
    out : Encoded, optional
        Whose bytes are written over, of the shape of `x`. It says the format then; `format`,
        `block` and `scale` are ignored.
    isa : {"scalar", "avx2", "avx512"}, optional
        CPU kernels to use; the result does not depend on it.
    stream : int or object, optional
        For an array on a CUDA device: the stream of torch, CuPy or Numba to work on, or its
        address. By default the current stream of CuPy for its arrays, else that of torch.

    Returns
    -------
    Encoded
        4, 6 or 8 bits an element, as the format says, and one scale a block; `out` itself where it
        is given.

    Raises
    ------
    TypeError
        `x` has another dtype.
    ValueError
        `x` is not dense, the format is none there is, or `out` is of another shape or device.
    NotImplementedError
        `x` is on a CUDA device, and this build has no kernels for it.
    """
    with caller_stream(x, stream, namespace_of(x)) as handle:
        values = as_tensor(x, "x").detach().contiguous()
        type_name = encodable_name(values, "x")
        if out is None:
            size = cpu_codec(format, block, scale, None).encoded_bytes(values.numel())
            data = torch.empty(size, dtype=torch.uint8, device=values.device)
            out = Encoded(data, values.shape, values.dtype, format, block, scale, namespace_of(x))
        else:
            _check_out(out, values.shape, values.device)
        out.kernels(isa, handle).encode(
            values.data_ptr(),
            type_name,
            values.numel(),
            out.data.data_ptr(),
            core_rounding(rounding),
        )
    return out


def _check_out(out: Any, shape: torch.Size, device: torch.device) -> None:
    if not isinstance(out, Encoded):
        raise TypeError(f"out must be Encoded, not {type(out).__name__}")
    if out.shape != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, what is encoded {tuple(shape)}")
    if out.data.device != device:
        raise ValueError(f"out is on {out.data.device}, but what is encoded on {device}")


def decode(
    encoded: Encoded,
    *,
    dtype: torch.dtype | None = None,
    out: Any = None,
    isa: str | None = None,
    stream: Any = None,
) -> Any:
    """Decode to numbers: code times scale, exact in fp32, rounded once to the result's dtype.

    Parameters
    ----------
    encoded : Encoded
        What `encode` or `sum_encode` returned.
    dtype : torch.dtype, optional
        fp32, bf16 or fp16; `encoded.dtype` by default. Ignored where `out` is given.
    out : array_like, optional
        Contiguous memory of `encoded.shape` to decode into.
    isa, stream : optional
        See `encode`.

    Returns
    -------
    array
        Of `encoded.shape`; `out` itself where it is given. A block that held a NaN or an infinity
        is all NaN.
    """
    with encoded.on_stream(stream) as handle:
        target = output(out, encoded.shape, dtype or encoded.dtype, encoded.data.device)
        encoded.kernels(isa, handle).decode(
            encoded.data.data_ptr(),
            encoded.numel(),
            target.data_ptr(),
            encodable_name(target, "out"),
        )
        return as_array(target, encoded.namespace) if out is None else out


def decode_accumulate(
    encoded: Encoded, accumulator: Any, *, isa: str | None = None, stream: Any = None
) -> Any:
    """Add decoded numbers to an fp32 accumulator, in place.

    Parameters
    ----------
    encoded : Encoded
        What is added.
    accumulator : array_like
        fp32, contiguous, of `encoded.shape`.
    isa, stream : optional
        See `encode`.

    Returns
    -------
    array_like
        `accumulator`.
    """
    with encoded.on_stream(stream) as handle:
        device = encoded.data.device
        target = output(accumulator, encoded.shape, torch.float32, device, "accumulator")
        if target.dtype != torch.float32:
            raise TypeError(f"accumulator must be float32, not {target.dtype}")
        encoded.kernels(isa, handle).decode_accumulate(
            encoded.data.data_ptr(), encoded.numel(), target.data_ptr()
        )
    return accumulator


def _first_encoded(pieces: Sequence[Any]) -> Encoded:
    for piece in pieces:
        if isinstance(piece, Encoded):
            return piece
    raise ValueError("pieces must hold at least one Encoded")


def _check_alike(whose: str, one: Encoded, other: Encoded) -> None:
    for field in ("shape", "format", "block", "scale"):
        if getattr(one, field) != getattr(other, field):
            raise ValueError(
                f"{whose} must have one {field}, not {getattr(one, field)} and "
                f"{getattr(other, field)}"
            )


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
        like = _first_encoded(pieces)
        for piece in encoded:
            _check_alike("all pieces", like, piece)
            if piece.data.device != like.data.device:
                raise ValueError(
                    f"all pieces must be on one device, not {like.data.device} and "
                    f"{piece.data.device}"
                )
        addresses, own, own_rank = [], None, -1
        for rank, piece in enumerate(pieces):
            if isinstance(piece, Encoded):
                addresses.append(piece.data.data_ptr())
                continue
            if own is not None:
                raise ValueError("at most one of the pieces may be numbers; encode the others")
            own, own_rank = as_tensor(piece, f"pieces[{rank}]").detach().contiguous(), rank
            if own.device != like.data.device:
                raise ValueError(
                    f"pieces[{rank}] is on {own.device}, the others on {like.data.device}"
                )
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
    stream: Any = None,
) -> Any:
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
    isa, stream : optional
        See `encode`.

    Returns
    -------
    array
        The sum; `out` itself where it is given.
    """
    like = _first_encoded(pieces)
    with like.on_stream(stream) as handle:
        arguments = _Pieces.of(pieces)
        target = output(out, like.shape, dtype or like.dtype, like.data.device)
        like.kernels(isa, handle).sum_decode(
            arguments.addresses,
            *arguments.own_arguments(),
            like.numel(),
            factor,
            target.data_ptr(),
            encodable_name(target, "out"),
        )
        return as_array(target, like.namespace) if out is None else out


def sum_encode(
    pieces: Sequence[Any],
    *,
    factor: float = 1.0,
    rounding: StochasticRounding | None = None,
    out: Encoded | None = None,
    decoded: Any = None,
    isa: str | None = None,
    stream: Any = None,
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
    out : Encoded, optional
        Whose bytes are written over, of the pieces' shape and format. May be one of the pieces: the
        others are added to it then, in one pass and without other memory.
    decoded : array_like, optional
        Receives the decoded result, in its own dtype: what every holder of the result decodes.
        Contiguous, of the pieces' shape; may be the memory of the piece that is numbers.
    isa, stream : optional
        See `encode`.

    Returns
    -------
    Encoded
        The sum; `out` itself where it is given.

    Raises
    ------
    ValueError
        Pieces differ in shape, format or device, `out` or `decoded` from them, or `out` overlaps a
        part of a piece.
    """
    like = _first_encoded(pieces)
    with like.on_stream(stream) as handle:
        arguments = _Pieces.of(pieces)
        target = None
        if decoded is not None:
            target = output(decoded, like.shape, like.dtype, like.data.device, "decoded")
        if out is None:
            dtype = like.dtype if target is None else target.dtype
            out = dataclasses.replace(like, data=torch.empty_like(like.data), dtype=dtype)
        else:
            _check_out(out, like.shape, like.data.device)
            _check_alike("out and the pieces", out, like)
        like.kernels(isa, handle).sum_encode(
            arguments.addresses,
            *arguments.own_arguments(),
            like.numel(),
            factor,
            out.data.data_ptr(),
            0 if target is None else target.data_ptr(),
            "float32" if target is None else encodable_name(target, "decoded"),
            core_rounding(rounding),
        )
    return out


# The name of the fused kernel in the literature: pieces are reduced and encoded in one pass.
reduce_encode = sum_encode
