"""One set of calls, made through torch.distributed or through mpi4py."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed as dist

# torch 2.13 renames them and warns about the old names, in the middle of the table.
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class Pending(Protocol):
    """A message on its way."""

    def wait(self) -> Any:
        """Return when it has been sent or received."""


class Collectives(Protocol):
    """What the programs measure. Buffers are contiguous; calls return when their result is there.

    `reduce_scatter`, `all_gather` and `all_to_all` take equal parts.
    """

    def all_reduce(self, buffer: torch.Tensor) -> None:
        """Sum in place."""

    def reduce_scatter(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Sum, each rank its part."""

    def all_gather(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Collect, in rank order."""

    def all_to_all(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Part r of `source` goes to rank r."""

    def broadcast(self, buffer: torch.Tensor, root: int) -> None:
        """Overwrite with the root's."""

    def barrier(self) -> None:
        """Return when all ranks have called."""

    def send(self, buffer: torch.Tensor, rank: int) -> Pending:
        """Begin to send to a rank."""

    def receive(self, buffer: torch.Tensor, rank: int) -> Pending:
        """Begin to receive from a rank."""


class TorchCollectives:
    """Through a process group of torch."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def all_reduce(self, buffer: torch.Tensor) -> None:
        """Sum in place."""
        dist.all_reduce(buffer, group=self._group)

    def reduce_scatter(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Sum, each rank its part."""
        _reduce_scatter(result, source, group=self._group)

    def all_gather(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Collect, in rank order."""
        _all_gather(result, source, group=self._group)

    def all_to_all(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Part r of `source` goes to rank r."""
        dist.all_to_all_single(result, source, group=self._group)

    def broadcast(self, buffer: torch.Tensor, root: int) -> None:
        """Overwrite with the root's."""
        dist.broadcast(buffer, root, group=self._group)

    def barrier(self) -> None:
        """Return when all ranks have called."""
        dist.barrier(group=self._group)

    def send(self, buffer: torch.Tensor, rank: int) -> Pending:
        """Begin to send to a rank."""
        return _known(dist.isend(buffer, rank, group=self._group))

    def receive(self, buffer: torch.Tensor, rank: int) -> Pending:
        """Begin to receive from a rank."""
        return _known(dist.irecv(buffer, rank, group=self._group))


def _known(work: Pending | None) -> Pending:
    if work is None:
        raise RuntimeError("this rank is no member of the group")
    return work


class MpiCollectives:
    """Through an mpi4py communicator; CUDA tensors need an MPI that takes them."""

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        from mpi4py import MPI

        self._in_place = MPI.IN_PLACE

    def all_reduce(self, buffer: torch.Tensor) -> None:
        """Sum in place."""
        self._comm.Allreduce(self._in_place, _view(buffer))

    def reduce_scatter(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Sum, each rank its part."""
        self._comm.Reduce_scatter_block(_view(source), _view(result))

    def all_gather(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Collect, in rank order."""
        self._comm.Allgather(_view(source), _view(result))

    def all_to_all(self, result: torch.Tensor, source: torch.Tensor) -> None:
        """Part r of `source` goes to rank r."""
        self._comm.Alltoall(_view(source), _view(result))

    def broadcast(self, buffer: torch.Tensor, root: int) -> None:
        """Overwrite with the root's."""
        self._comm.Bcast(_view(buffer), root=root)

    def barrier(self) -> None:
        """Return when all ranks have called."""
        self._comm.Barrier()

    def send(self, buffer: torch.Tensor, rank: int) -> Pending:
        """Begin to send to a rank."""
        return self._comm.Isend(_view(buffer), rank)

    def receive(self, buffer: torch.Tensor, rank: int) -> Pending:
        """Begin to receive from a rank."""
        return self._comm.Irecv(_view(buffer), rank)


def _view(tensor: torch.Tensor) -> Any:
    """What mpi4py reads without a copy: it knows __cuda_array_interface__, too."""
    return tensor if tensor.is_cuda else tensor.numpy()
