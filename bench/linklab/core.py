"""The exact path of the library itself: a call without torch.distributed around it."""

from __future__ import annotations

import torch
import torch.distributed as dist

import agoq_comm
from agoq_comm._C import make_communicator


class CoreCollectives:
    """All-reduce by a communicator of the core, its ranks those of the default group."""

    def __init__(self, transport: str) -> None:
        store = dist.distributed_c10d._get_default_store()
        self._communicator = make_communicator(
            store=dist.PrefixStore(f"linklab core over {transport}", store),
            rank=dist.get_rank(),
            size=dist.get_world_size(),
            options=agoq_comm.Options(transport=transport, quantize=()),
            topology=None,
        )

    def all_reduce(self, buffer: torch.Tensor) -> None:
        """Sum in place, in fp32."""
        data = buffer.data_ptr()
        self._communicator.all_reduce(data, data, buffer.numel(), "float32", "sum", None, 1.0)
