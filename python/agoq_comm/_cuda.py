"""CUDA arrays of any library, and the stream that their caller works on.

All that touches a GPU is in the functions that begin with an underscore.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

# Of DLPack: memory of a device, and memory that moves by itself.
_DLPACK_CUDA = (2, 13)
# Streams of the interface that are names, not addresses.
_LEGACY_DEFAULT = 1


def is_cuda_array(x: Any) -> bool:
    """Tell whether `x`, of whatever library, is memory of a CUDA device."""
    if isinstance(x, torch.Tensor):
        return x.is_cuda
    if hasattr(x, "__dlpack_device__"):
        return int(x.__dlpack_device__()[0]) in _DLPACK_CUDA
    return hasattr(x, "__cuda_array_interface__")


def as_cuda_tensor(
    x: Any, name: str, *, written: bool = False, encoded: bool = True
) -> torch.Tensor:
    """View a CUDA array as a tensor that shares its memory, for use on torch's current stream.

    Parameters
    ----------
    x : array
        With DLPack, or else with ``__cuda_array_interface__``.
    name : str
        Of the argument, for errors.
    written : bool
        Whether it is an output.
    encoded : bool
        Whether the codec's kernels work on it, which know few types.
    """
    if isinstance(x, torch.Tensor):
        return x
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is not None:
        _check(interface, name, written)
        if encoded:
            _check_type(interface, name)
    if not _available():
        raise RuntimeError(
            f"{name} is CUDA memory, but torch sees no GPU; install a torch that is built for CUDA "
            "on a machine with a driver"
        )
    if hasattr(x, "__dlpack__"):
        return _from_dlpack(x)  # It asks the other library to order its stream before ours.
    stream = interface.get("stream") if interface is not None else None
    if stream is not None:
        _wait_for(stream)
    return _from_interface(x)


def _check(interface: dict[str, Any], name: str, written: bool) -> None:
    """Raise ValueError for an interface that cannot be used."""
    version = interface.get("version", 0)
    if version < 2:
        raise ValueError(f"{name} has version {version} of __cuda_array_interface__; 2 is needed")
    if interface.get("mask") is not None:
        raise ValueError(f"{name} has a mask; only dense arrays are taken")
    if interface.get("stream") == 0:
        raise ValueError(f"{name} says that its stream is 0, which names none; 1 is the default")
    if written and interface["data"][1]:
        raise ValueError(f"{name} is read-only")


def _check_type(interface: dict[str, Any], name: str) -> None:
    kind = interface["typestr"][1:]
    if kind not in ("f4", "f2", "u1"):
        raise TypeError(
            f"{name} has elements of type {interface['typestr']}; the codec takes float32, float16 "
            "and, by DLPack, bfloat16"
        )


def handle_of(stream: Any) -> int:
    """Return the cudaStream_t, as a number, of a stream of torch, CuPy, Numba or any other library.

    Parameters
    ----------
    stream : int or object
        An object has ``__cuda_stream__``, ``cuda_stream`` (torch), ``ptr`` (CuPy) or ``handle``
        (Numba).
    """
    if isinstance(stream, int):
        return stream
    if hasattr(stream, "__cuda_stream__"):
        pair = stream.__cuda_stream__
        return int((pair() if callable(pair) else pair)[1])
    for attribute in ("cuda_stream", "ptr", "handle"):
        value = getattr(stream, attribute, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise TypeError(f"stream is {stream!r}; pass a stream of torch, CuPy or Numba, or its address")


@contextlib.contextmanager
def caller_stream(x: Any, stream: Any, namespace: Any) -> Iterator[int]:
    """Make the stream of the caller torch's current one, and yield its handle; 0 for CPU memory.

    Parameters
    ----------
    x : array
        What the call is about.
    stream : int or object, optional
        See `handle_of`.
    namespace : module, optional
        Array library whose current stream is taken where `stream` is None; else that of torch.
    """
    if not is_cuda_array(x):
        if stream is not None:
            raise ValueError("stream is for CUDA arrays; this call is on CPU memory")
        yield 0
        return
    if not _available():
        as_cuda_tensor(x, "x")  # Says what is wrong with it, or that there is no GPU.
    device = _device_of(x)
    handle = _current(device, namespace) if stream is None else handle_of(stream)
    with _entered(handle, device):
        yield handle


def _device_of(x: Any) -> int | None:
    """Index of the device, or None where only torch could find it: then it is the current one."""
    if isinstance(x, torch.Tensor):
        return x.device.index
    return int(x.__dlpack_device__()[1]) if hasattr(x, "__dlpack_device__") else None


def _available() -> bool:
    return torch.cuda.is_available()


def _current(device: int | None, namespace: Any) -> int:
    if namespace is not None and namespace.__name__ == "cupy":
        return int(namespace.cuda.get_current_stream().ptr)
    return int(torch.cuda.current_stream(device).cuda_stream)


def _stream(handle: int, device: int | None = None) -> Any:
    if handle in (0, _LEGACY_DEFAULT):
        return torch.cuda.default_stream(device)
    external: Any = torch.cuda.ExternalStream
    return external(handle, device)


@contextlib.contextmanager
def _entered(handle: int, device: int | None) -> Iterator[None]:
    # An external stream makes its device the current one as well.
    with torch.cuda.stream(_stream(handle, device)):
        yield


def _wait_for(handle: int) -> None:
    torch.cuda.current_stream().wait_stream(_stream(handle))


def _from_dlpack(x: Any) -> torch.Tensor:
    return torch.from_dlpack(x)


def _from_interface(x: Any) -> torch.Tensor:
    return torch.as_tensor(x)
