"""Quantizing as operators of torch, opaque to its compiler: one node each in a compiled graph.

They know no gradients: a stored activation is data, and who differentiates through a rounding says
how. They are registered without `torch.library.custom_op`, whose wrappers cost more than the
encoding of a small activation, and import the compiler at the first call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from agoq_comm import codec
from agoq_comm._arrays import encodable_name
from agoq_comm._encoded import core_rounding, cpu_codec
from agoq_comm.activation.formats import Format

_library: Any = torch.library.Library("agoq", "FRAGMENT")  # type: ignore[no-untyped-call]
_library.define("quantize(Tensor x, str format, int block, str scale) -> Tensor")
_library.define(
    "dequantize(Tensor data, SymInt[] shape, ScalarType dtype, str format, int block, str scale)"
    " -> Tensor"
)
_HALF_TO_EVEN = core_rounding(None)


def _quantize_cpu(x: torch.Tensor, format: str, block: int, scale: str) -> torch.Tensor:
    # A bit that negates is not in the memory which the codec reads.
    values = x.resolve_neg().contiguous()
    type_name = encodable_name(values, "x")
    kernels, numel = cpu_codec(format, block, scale, None), values.numel()
    data = torch.empty(kernels.encoded_bytes(numel), dtype=torch.uint8)
    kernels.encode(values.data_ptr(), type_name, numel, data.data_ptr(), _HALF_TO_EVEN)
    return data


def _quantize_cuda(x: torch.Tensor, format: str, block: int, scale: str) -> torch.Tensor:
    return codec.encode(x.resolve_neg(), format=format, block=block, scale=scale).data


def _quantize_like(x: torch.Tensor, format: str, block: int, scale: str) -> torch.Tensor:
    size = Format(format, block, scale).encoded_bytes(x.numel())
    return x.new_empty([size], dtype=torch.uint8)


def _dequantize_cpu(
    data: torch.Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
    format: str,
    block: int,
    scale: str,
) -> torch.Tensor:
    out = torch.empty(shape, dtype=dtype)
    kernels, numel = cpu_codec(format, block, scale, None), out.numel()
    expected = kernels.encoded_bytes(numel)
    if data.dtype != torch.uint8 or data.shape != (expected,) or not data.is_contiguous():
        raise ValueError(
            f"data must be {expected} contiguous bytes for shape {tuple(shape)} in "
            f"{format}/{block}/{scale}, not {tuple(data.shape)} of {data.dtype}"
        )
    kernels.decode(data.data_ptr(), numel, out.data_ptr(), encodable_name(out, "dtype"))
    return out


def _dequantize_cuda(
    data: torch.Tensor,
    shape: Sequence[int],
    dtype: torch.dtype,
    format: str,
    block: int,
    scale: str,
) -> torch.Tensor:
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


_library.impl("quantize", _quantize_cpu, "CPU")
_library.impl("quantize", _quantize_cuda, "CUDA")
_library.impl("dequantize", _dequantize_cpu, "CPU")
_library.impl("dequantize", _dequantize_cuda, "CUDA")
torch.library.register_fake("agoq::quantize", _quantize_like, lib=_library)
torch.library.register_fake("agoq::dequantize", _dequantize_like, lib=_library)

quantize = torch.ops.agoq.quantize.default
dequantize = torch.ops.agoq.dequantize.default
