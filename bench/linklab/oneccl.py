"""oneCCL's collectives through its C functions; PyPI's package oneccl has them.

Its communicator lives in an MPI job (``CCL_ATL_TRANSPORT=mpi``), and so works under mpirun only.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch
import torch.distributed as dist

from linklab.network import LabError

# oneapi/ccl/v2/types.h
_TYPES = {torch.float32: 7, torch.bfloat16: 9, torch.float16: 6}
_SUM = 0


class _UniqueId(ctypes.Structure):
    _fields_ = (("data", ctypes.c_char * 4096),)


class OneCcl:
    """The part of `Collectives` that the lab measures. Not thread-safe."""

    def __init__(self) -> None:
        folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        found = [Path(f) / "libccl.so.2" for f in folders if (Path(f) / "libccl.so.2").exists()]
        if not found:
            raise LabError("no libccl.so.2 in LD_LIBRARY_PATH (pip install oneccl)")
        self._library = ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
        self._library.onecclGetErrorString.restype = ctypes.c_char_p
        unique = _UniqueId()
        if dist.get_rank() == 0:
            self._check(self._library.onecclGetUniqueId(ctypes.byref(unique)))
        shared = [bytes(unique)]
        dist.broadcast_object_list(shared)
        self._communicator = ctypes.c_void_p()
        self._check(
            self._library.onecclCommInitRank(
                ctypes.byref(self._communicator),
                ctypes.c_size_t(dist.get_world_size()),
                _UniqueId.from_buffer_copy(shared[0]),
                dist.get_rank(),
            )
        )

    def _check(self, code: int) -> None:
        if code != 0:
            raise LabError(f"oneCCL: {self._library.onecclGetErrorString(code).decode()}")

    def _call(
        self,
        name: str,
        source: torch.Tensor,
        result: torch.Tensor,
        count: int,
        *operation: int,
    ) -> None:
        function = getattr(self._library, name)
        addresses = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (source, result)]
        kind = _TYPES[source.dtype]
        self._check(
            function(*addresses, ctypes.c_size_t(count), kind, *operation, self._communicator, None)
        )

    def all_reduce(self, buffer: torch.Tensor) -> None:
        """Sum in place."""
        self._call("onecclAllReduce", buffer, buffer, buffer.numel(), _SUM)

    def reduce_scatter(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Sum, each rank its part."""
        self._call("onecclReduceScatter", source, result, result.numel(), _SUM)

    def all_gather(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Collect, in rank order."""
        self._call("onecclAllGather", source, result, source.numel())
