"""Values of PTX types as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_KINDS = {"u": "u", "b": "u", "s": "i", "f": "f"}
CUDA_NAN = 0x7FFFFFFF


def bits_of(ptx_type: str) -> int:
    """Width of a type such as ``s64``."""
    return int(ptx_type[1:])


def numpy_type(ptx_type: str) -> np.dtype[Any]:
    """NumPy type of a PTX type; ``pred`` is bool."""
    if ptx_type == "pred":
        return np.dtype(bool)
    return np.dtype(f"{_KINDS[ptx_type[0]]}{bits_of(ptx_type) // 8}")


def immediate(text: str, ptx_type: str) -> Array:
    """Value of a literal, e.g. ``0f3F800000`` or ``-1``."""
    if text.startswith("0f"):
        return np.array(int(text[2:], 16), np.uint32).view(np.float32)
    if ptx_type == "pred":
        return np.array(int(text, 0) != 0)
    width = bits_of(ptx_type)
    bits = np.array(int(text, 0) & (1 << width) - 1, f"u{width // 8}")
    return bits.view(numpy_type(ptx_type))


def as_device(x: Array) -> Array:
    """Give every NaN of an fp32 result the bits that CUDA's arithmetic gives it."""
    if x.dtype != np.float32:
        return x
    bits = np.array(x).view(np.uint32)
    bits[np.isnan(x)] = CUDA_NAN
    return bits.view(np.float32)


def to_bfloat16(x: Array) -> npt.NDArray[np.uint16]:
    """cvt.rn.bf16.f32: half to even; NaN becomes 0x7fff."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), 0x7FFF, rounded).astype(np.uint16)


def to_float16(x: Array) -> npt.NDArray[np.uint16]:
    """cvt.rn.f16.f32: half to even; NaN becomes 0x7fff."""
    return np.where(np.isnan(x), 0x7FFF, x.astype(np.float16).view(np.uint16)).astype(np.uint16)
