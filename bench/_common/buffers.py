"""Buffers of one dtype on one device, allocated by torch, NumPy or CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass(frozen=True)
class Buffers:
    """Allocates what a workload sends and receives; all of it is seen as torch tensors."""

    dtype: torch.dtype
    device: torch.device
    library: str = "torch"

    def empty(self, count: int) -> torch.Tensor:
        """Return `count` elements, uninitialized."""
        return _LIBRARIES[self.library](self, count)

    def random(self, count: int, seed: int = 0) -> torch.Tensor:
        """Return numbers that differ from rank to rank and not from run to run."""
        generator = torch.Generator().manual_seed(1000 + 1_000_003 * seed + dist.get_rank())
        if self.dtype.is_floating_point:
            values = torch.randn(count, generator=generator).to(self.dtype)
        else:
            values = torch.randint(-100, 100, (count,), dtype=self.dtype, generator=generator)
        buffer = self.empty(count)
        buffer.copy_(values)
        return buffer


def _torch_empty(buffers: Buffers, count: int) -> torch.Tensor:
    return torch.empty(count, dtype=buffers.dtype, device=buffers.device)


def _type_name(buffers: Buffers) -> str:
    name = str(buffers.dtype).removeprefix("torch.")
    if name == "bfloat16":
        raise SystemExit(f"{buffers.library} knows no bfloat16; use -b torch or another -T")
    return name


def _numpy_empty(buffers: Buffers, count: int) -> torch.Tensor:
    import numpy as np

    return torch.from_numpy(np.empty(count, _type_name(buffers)))


def _cupy_empty(buffers: Buffers, count: int) -> torch.Tensor:
    try:
        import cupy
    except ImportError as error:
        raise SystemExit(f"-b cupy: {error}; install the CuPy of your CUDA version") from None
    with cupy.cuda.Device(buffers.device.index):
        return torch.from_dlpack(cupy.empty(count, _type_name(buffers)))


_LIBRARIES: dict[str, Callable[[Buffers, int], torch.Tensor]] = {
    "torch": _torch_empty,
    "numpy": _numpy_empty,
    "cupy": _cupy_empty,
}
