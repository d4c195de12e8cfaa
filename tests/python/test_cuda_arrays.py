"""Arrays of other libraries: those of the CPU as they are, those of CUDA up to the kernels."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import agoq_comm
from agoq_comm import _C, _arrays, _cuda

X = np.random.default_rng(0).standard_normal(1000).astype(np.float32)


class CudaArray:
    """Host memory that says it is a device's, as CuPy and Numba say it of theirs."""

    def __init__(self, array: np.ndarray, **changes: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, False),
            "strides": None if array.flags.c_contiguous else array.strides,
            "version": 3,
            "stream": None,
            **changes,
        }


class Device:
    """Stands behind the seam of `agoq_comm._cuda`: host memory, and a log of the streams."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    @contextlib.contextmanager
    def entered(self, handle: int, device: int | None):
        self.log.append(("enter", handle))
        yield

    def wait_for(self, handle: int) -> None:
        self.log.append(("wait for", handle))

    def codec(self, element: str, block: int, scale: str, stream: int) -> _C.Codec:
        self.log.append(("codec", stream))
        return _C.Codec(element, block, scale)

    @staticmethod
    def from_interface(x: CudaArray) -> torch.Tensor:
        # By the interface alone, as torch reads it.
        interface = x.__cuda_array_interface__
        kind = np.dtype(interface["typestr"])
        strides = interface["strides"] or np.empty(interface["shape"], kind).strides
        count = 1 + sum((n - 1) * s for n, s in zip(interface["shape"], strides, strict=True))
        memory = (ctypes.c_byte * (count + kind.itemsize)).from_address(interface["data"][0])
        array = np.ndarray(interface["shape"], kind, memory, strides=strides)
        return OnDevice(torch.from_numpy(array))


class OnDevice(torch.Tensor):
    """A CPU tensor that says it is on a device, so that the codec treats it as such."""

    @staticmethod
    def __new__(cls, tensor: torch.Tensor) -> OnDevice:
        return tensor.as_subclass(cls)

    @property
    def is_cuda(self) -> bool:
        return True


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(_cuda, "_available", lambda: True)
    monkeypatch.setattr(_cuda, "_current", lambda device, namespace: 77)
    monkeypatch.setattr(_cuda, "_entered", device.entered)
    monkeypatch.setattr(_cuda, "_wait_for", device.wait_for)
    monkeypatch.setattr(_cuda, "_from_interface", device.from_interface)
    monkeypatch.setattr(_C, "CudaCodec", device.codec)
    real = agoq_comm._encoded.kernels

    def kernels(where, format, block, scale, isa, stream):
        if stream:
            where = SimpleNamespace(type="cuda")
        return real(where, format, block, scale, isa, stream)

    monkeypatch.setattr(agoq_comm._encoded, "kernels", kernels)
    return device


def test_a_cuda_array_is_encoded_on_the_current_stream(device: Device) -> None:
    encoded = agoq_comm.encode(CudaArray(X))
    assert device.log == [("enter", 77), ("codec", 77)]
    assert torch.equal(torch.Tensor(encoded.data), agoq_comm.encode(X).data)


def test_the_stream_of_the_array_is_waited_for(device: Device) -> None:
    agoq_comm.encode(CudaArray(X, stream=5))
    assert device.log == [("enter", 77), ("wait for", 5), ("codec", 77)]


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (9, 9),
        (SimpleNamespace(cuda_stream=10), 10),
        (SimpleNamespace(ptr=11), 11),
        (SimpleNamespace(handle=ctypes.c_void_p(12)), 12),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 13)), 13),
        (SimpleNamespace(__cuda_stream__=(0, 14)), 14),
    ],
)
def test_a_stream_may_be_named(device: Device, stream: Any, handle: int) -> None:
    agoq_comm.encode(CudaArray(X), stream=stream)
    assert device.log == [("enter", handle), ("codec", handle)]


def test_something_that_is_no_stream_is_refused(device: Device) -> None:
    with pytest.raises(TypeError, match="torch, CuPy or Numba"):
        agoq_comm.encode(CudaArray(X), stream="fast")


def test_strides_are_followed(device: Device) -> None:
    strided = X.reshape(25, 40).T
    encoded = agoq_comm.encode(CudaArray(strided))
    assert encoded.shape == strided.shape
    assert torch.equal(torch.Tensor(encoded.data), agoq_comm.encode(strided.copy()).data)


def test_a_read_only_array_is_an_input_and_no_output(device: Device) -> None:
    read_only = CudaArray(X, data=(X.ctypes.data, True))
    assert agoq_comm.encode(read_only).numel() == X.size
    with pytest.raises(ValueError, match="out is read-only"):
        _arrays.output(read_only, torch.Size([X.size]), torch.float32, torch.device("cuda"))


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"version": 1}, ValueError, "version 1"),
        ({"mask": X}, ValueError, "mask"),
        ({"stream": 0}, ValueError, "stream is 0"),
        ({"typestr": "<f8"}, TypeError, "<f8.*float32"),
    ],
)
def test_an_interface_that_cannot_be_used_gets_a_sentence(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        agoq_comm.encode(CudaArray(X, **changes))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which serves the call")
def test_without_a_gpu_the_error_says_so() -> None:
    with pytest.raises(RuntimeError, match="torch sees no GPU"):
        agoq_comm.encode(CudaArray(X))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, which serves the call")
def test_without_a_gpu_there_is_no_cuda_codec() -> None:
    with pytest.raises(NotImplementedError, match="CUDA"):
        _C.CudaCodec("int8", 128, "bf16", 0)


def test_a_stream_is_for_devices_only() -> None:
    with pytest.raises(ValueError, match="stream is for CUDA arrays"):
        agoq_comm.encode(X, stream=1)


def test_numpy_gives_numpy() -> None:
    encoded = agoq_comm.encode(X)
    decoded = agoq_comm.decode(encoded)
    assert isinstance(decoded, np.ndarray) and decoded.dtype == np.float32
    total = agoq_comm.sum_decode([encoded, X])
    assert isinstance(total, np.ndarray)
    np.testing.assert_array_equal(total, decoded + X)
    # NumPy has no bfloat16.
    assert agoq_comm.decode(encoded, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_torch_gives_torch() -> None:
    assert isinstance(agoq_comm.decode(agoq_comm.encode(torch.from_numpy(X))), torch.Tensor)


def test_a_result_is_written_into_the_array_that_was_given() -> None:
    out = np.empty_like(X)
    assert agoq_comm.decode(agoq_comm.encode(X), out=out) is out
    np.testing.assert_array_equal(out, agoq_comm.decode(agoq_comm.encode(X)))


def test_reduce_encode_is_one_pass_of_sum_and_encode() -> None:
    pieces = [agoq_comm.encode(X), X]
    total = agoq_comm.sum_decode(pieces)
    assert torch.equal(agoq_comm.reduce_encode(pieces).data, agoq_comm.encode(total).data)


class OtherLibrary:
    """A library that follows the array API and keeps DLPack's memory, as JAX does."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.tensor.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return SimpleNamespace(__name__="other", from_dlpack=OtherLibrary)


def test_arrays_that_never_change_are_no_outputs() -> None:
    array = type("ArrayImpl", (OtherLibrary,), {"__module__": "jaxlib._jax"})(torch.zeros(X.size))
    with pytest.raises(ValueError, match="out is an array of JAX"):
        agoq_comm.decode(agoq_comm.encode(X), out=array)


def test_any_library_with_dlpack_gets_its_own_arrays() -> None:
    encoded = agoq_comm.encode(OtherLibrary(torch.from_numpy(X)))
    decoded = agoq_comm.decode(encoded)
    assert isinstance(decoded, OtherLibrary)
    np.testing.assert_array_equal(decoded.tensor.numpy(), agoq_comm.decode(agoq_comm.encode(X)))
