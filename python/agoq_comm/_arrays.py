"""What callers pass for an array, as a torch tensor that shares its memory."""

from __future__ import annotations

from typing import Any

import torch

ENCODABLE = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def as_cpu_tensor(x: Any, name: str) -> torch.Tensor:
    """View `x` as a CPU tensor that shares its memory where it can."""
    if not isinstance(x, torch.Tensor):
        if hasattr(x, "__dlpack__") and not _is_read_only(x):
            x = torch.from_dlpack(x)
        else:
            import numpy as np  # Only torch is required; who passes a buffer has NumPy as a rule.

            array = np.asarray(x)
            x = torch.from_numpy(array if array.flags.writeable else array.copy())
    if x.device.type != "cpu":
        raise ValueError(f"{name} is on {x.device}; this function takes CPU memory")
    if x.layout != torch.strided:
        raise ValueError(f"{name} has layout {x.layout}; only dense tensors are encoded")
    return x


def _is_read_only(x: Any) -> bool:
    flags = getattr(x, "flags", None)
    return flags is not None and not flags.writeable


def encodable_name(tensor: torch.Tensor, name: str) -> str:
    """Name the dtype for the core; TypeError says what the codec takes."""
    try:
        return ENCODABLE[tensor.dtype]
    except KeyError:
        raise TypeError(
            f"{name} is {tensor.dtype}; the codec takes float32, bfloat16 and float16"
        ) from None


def output(out: Any, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Check memory for a result, or make it."""
    if out is None:
        return torch.empty(shape, dtype=dtype)
    out = as_cpu_tensor(out, "out")
    if out.shape != shape or not out.is_contiguous():
        raise ValueError(
            f"out must be contiguous and of shape {tuple(shape)}, not {tuple(out.shape)}"
        )
    return out
