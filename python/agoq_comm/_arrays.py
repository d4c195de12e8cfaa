"""What callers pass for an array, as a torch tensor that shares its memory, and back."""

from __future__ import annotations

from typing import Any

import torch

from agoq_comm._cuda import as_cuda_tensor, is_cuda_array

# Libraries that lend memory by DLPack for reading only, and do not say so there.
_IMMUTABLE = ("jax", "jaxlib")

# Of DLPack.
_DLPACK_CPU = 1

# Types of devices that the codec has kernels for.
DEVICE_TYPES = {"cpu", "cuda"}

ENCODABLE = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def as_tensor(x: Any, name: str, *, written: bool = False) -> torch.Tensor:
    """View `x` as a tensor that shares its memory where it can; where `written`, it must."""
    if written and type(x).__module__.partition(".")[0] in _IMMUTABLE:
        raise ValueError(f"{name} is an array of JAX, whose arrays never change")
    if is_cuda_array(x):
        x = as_cuda_tensor(x, name, written=written)
    elif not isinstance(x, torch.Tensor):
        read_only = _is_read_only(x)
        if written and read_only:
            raise ValueError(f"{name} is read-only")
        if hasattr(x, "__dlpack__") and not read_only:
            x = torch.from_dlpack(x)
        else:
            import numpy as np  # Only torch is required; who passes a buffer has NumPy as a rule.

            array = np.asarray(x)
            x = torch.from_numpy(array if array.flags.writeable else array.copy())
    if x.device.type not in DEVICE_TYPES:
        raise ValueError(f"{name} is on {x.device}; the codec takes memory of the CPU and of CUDA")
    if x.layout != torch.strided:
        raise ValueError(f"{name} has layout {x.layout}; only dense tensors are encoded")
    return x


def as_cpu_tensor(x: Any, name: str) -> torch.Tensor:
    """View `x` as a CPU tensor that shares its memory where it can."""
    if is_cuda_array(x):
        raise ValueError(f"{name} is on a CUDA device; this function takes CPU memory")
    return as_tensor(x, name)


def as_host_copy(
    x: Any, name: str, *, written: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """View `x` as a tensor of the CPU, or stage it there; `written` says that it is an output.

    Returns
    -------
    host : torch.Tensor
        The memory of `x`, or uninitialized memory of the CPU in its stead, of the same shape.
    device : torch.Tensor or None
        A view of `x` where it is memory of a device.
    """
    if is_cuda_array(x):
        view = as_cuda_tensor(x, name, written=written, encoded=False)
    elif isinstance(x, torch.Tensor) and x.device.type != "cpu":
        view = x
    elif hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) != _DLPACK_CPU:
        view = torch.from_dlpack(x)
    else:
        return as_cpu_tensor(x, name).detach(), None
    # Pinned memory moves at the speed of the bus.
    pinned = torch.cuda.is_available()
    return torch.empty(view.shape, dtype=view.dtype, pin_memory=pinned), view.detach()


def _is_read_only(x: Any) -> bool:
    flags = getattr(x, "flags", None)
    return flags is not None and not flags.writeable


def namespace_of(x: Any) -> Any:
    """Return the array library of `x`, by the array API, or None for torch and for buffers."""
    if isinstance(x, torch.Tensor) or not hasattr(x, "__array_namespace__"):
        return None
    return x.__array_namespace__()


def as_array(tensor: torch.Tensor, namespace: Any) -> Any:
    """View a tensor as an array of `namespace`; as it is where that library has no such type."""
    if namespace is None:
        return tensor
    if namespace.__name__ == "numpy":
        return tensor if tensor.dtype == torch.bfloat16 else tensor.numpy()
    try:
        return namespace.from_dlpack(tensor)
    except (BufferError, TypeError, ValueError, RuntimeError):
        return tensor


def encodable_name(tensor: torch.Tensor, name: str) -> str:
    """Name the dtype for the core; TypeError says what the codec takes."""
    try:
        return ENCODABLE[tensor.dtype]
    except KeyError:
        raise TypeError(
            f"{name} is {tensor.dtype}; the codec takes float32, bfloat16 and float16"
        ) from None


def output(
    out: Any, shape: torch.Size, dtype: torch.dtype, device: torch.device, name: str = "out"
) -> torch.Tensor:
    """Check memory for a result, or make it."""
    if out is None:
        return torch.empty(shape, dtype=dtype, device=device)
    out = as_tensor(out, name, written=True)
    if out.shape != shape or not out.is_contiguous():
        raise ValueError(
            f"{name} must be contiguous and of shape {tuple(shape)}, not {tuple(out.shape)}"
        )
    if out.device != device:
        raise ValueError(f"{name} is on {out.device}, but what is decoded on {device}")
    return out
