"""Quantized collectives over the ranks of an mpi4py communicator, in mpi4py's upper-case style.

Start the program with mpirun and say what you would say to mpi4py::

    from mpi4py import MPI
    from agoq_comm.mpi import Comm

    comm = Comm(MPI.COMM_WORLD)
    comm.Allreduce(MPI.IN_PLACE, gradients, op=MPI.SUM)

MPI is used once, to let the ranks find each other; the bytes travel over agoq_comm's own transports
(shared memory inside a host, sockets between hosts). Buffers are NumPy or CuPy arrays, torch
tensors or anything else with DLPack, ``__cuda_array_interface__`` or the buffer protocol. Memory of
a device is staged through the host's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from agoq_comm._arrays import as_host_copy
from agoq_comm._C import Options, make_communicator
from agoq_comm._mpi_store import make_store
from agoq_comm.communicator import TYPES

__all__ = ["Comm", "make_store"]

# mpi4py's operations by the core's names. Others, such as MAXLOC, are none of torch's either.
_OPS = {
    "SUM": "sum",
    "PROD": "product",
    "MIN": "min",
    "MAX": "max",
    "BAND": "band",
    "BOR": "bor",
    "BXOR": "bxor",
}


class Comm:
    """The ranks of an mpi4py communicator, joined by agoq_comm.

    Making one is a collective call. All ranks must issue the same calls in the same order. A call
    returns when its result is in the caller's buffer. After an error, other than one about an
    argument, the communicator stays failed: make a new one.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Whose ranks take part. It is not used after the constructor.
    options : Options, optional
        Format, thresholds, transport; equal on all ranks.
    topology : sequence of int, optional
        A number for each rank, the same on all of them: ranks of equal numbers are taken to share
        a node. By default those that AGOQ_NODE_ID gives one name, or else those of one host.
    """

    def __init__(
        self, comm: Any, options: Options | None = None, topology: Sequence[int] | None = None
    ) -> None:
        options = Options() if options is None else options
        store = make_store(comm, options._timeout)
        self._native = make_communicator(
            store=store,
            rank=comm.Get_rank(),
            size=comm.Get_size(),
            options=options,
            topology=topology,
        )
        # Rank 0's store serves the others until they are connected, and is then dropped.
        comm.Barrier()

    def Get_rank(self) -> int:  # noqa: N802 - mpi4py's name
        """This rank, in [0, size)."""
        return self._native.rank

    def Get_size(self) -> int:  # noqa: N802 - mpi4py's name
        """Ranks of the communicator."""
        return self._native.size

    def Allreduce(  # noqa: N802 - mpi4py's name
        self, sendbuf: Any, recvbuf: Any, op: Any = "sum"
    ) -> None:
        """Reduce arrays over the ranks; every rank gets the same bits.

        Parameters
        ----------
        sendbuf : array_like or MPI.IN_PLACE
            This rank's contribution; in place, it is what `recvbuf` holds.
        recvbuf : array_like
            Contiguous memory for the result, with `sendbuf`'s dtype and number of elements.
        op : mpi4py.MPI.Op or str
            SUM, PROD, MIN, MAX, BAND, BOR or BXOR, or a name that
            `agoq_comm.Communicator.all_reduce` knows, such as ``"avg"``.
        """
        in_place = _is_in_place(sendbuf)
        target = _Output(recvbuf, "recvbuf", is_read=in_place)
        result = target.host
        source = result if in_place else _input(sendbuf, "sendbuf")
        _check_pair(source, result, result.numel(), "recvbuf's number of elements")
        self._native.all_reduce(
            source.data_ptr(),
            result.data_ptr(),
            source.numel(),
            _type_name(source, "sendbuf"),
            _op_name(op),
            None,
            1.0,
        )
        target.deliver()

    def Reduce_scatter(  # noqa: N802 - mpi4py's name
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Sequence[int] | None = None,
        op: Any = "sum",
    ) -> None:
        """Reduce arrays over the ranks; rank r gets the r-th part of the reduction.

        Parameters
        ----------
        sendbuf : array_like or MPI.IN_PLACE
            The parts for all ranks, one after the other. In place, `recvbuf` holds them, and the
            result replaces its beginning.
        recvbuf : array_like
            Contiguous memory for ``recvcounts[rank]`` elements.
        recvcounts : sequence of int, optional
            Elements of each rank's part; by default all have as many.
        op : mpi4py.MPI.Op or str
            See `Allreduce`.
        """
        in_place = _is_in_place(sendbuf)
        target = _Output(recvbuf, "recvbuf", is_read=in_place)
        source = target.host if in_place else _input(sendbuf, "sendbuf")
        counts = self._counts(recvcounts, source.numel())
        own = counts[self._native.rank]
        if in_place:
            # The result's place is another rank's part, which is read until the call ends.
            result = torch.empty(own, dtype=source.dtype)
        else:
            result = target.host
            if result.numel() != own or result.dtype != source.dtype:
                raise ValueError(
                    f"recvbuf must hold {own} elements of {source.dtype}, not {result.numel()} of "
                    f"{result.dtype}"
                )
        parts = torch.split(source.view(-1), counts)
        self._native.reduce_scatter(
            [part.data_ptr() for part in parts],
            counts,
            result.data_ptr(),
            _type_name(source, "sendbuf"),
            _op_name(op),
            None,
            1.0,
        )
        if in_place:
            source.view(-1)[:own] = result
        target.deliver()

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:  # noqa: N802 - mpi4py's name
        """Collect every rank's array on every rank; quantized only where the options say so.

        Parameters
        ----------
        sendbuf : array_like or MPI.IN_PLACE
            This rank's array, of as many elements as the others'; in place, it is the rank's part
            of `recvbuf`.
        recvbuf : array_like
            Contiguous memory for the arrays of all ranks, one after the other.
        """
        in_place = _is_in_place(sendbuf)
        target = _Output(recvbuf, "recvbuf", is_read=in_place)
        result = target.host
        counts = self._counts(None, result.numel())
        parts = torch.split(result.view(-1), counts)
        own = parts[self._native.rank]
        source = own if in_place else _input(sendbuf, "sendbuf")
        _check_pair(source, result, own.numel(), f"1/{len(counts)} of recvbuf's elements")
        self._native.all_gather(
            source.data_ptr(),
            [part.data_ptr() for part in parts],
            counts,
            _type_name(source, "sendbuf"),
            None,
        )
        target.deliver()

    def stats(self) -> dict[str, dict[str, Any]]:
        """Counters by operation, for operations that were called; see `agoq_comm.stats`."""
        return self._native.stats()

    def reset_stats(self) -> None:
        """Set all counters to zero."""
        self._native.reset_stats()

    def describe(self) -> str:
        """A few lines for people: ranks, transport, format, thresholds."""
        return self._native.describe()

    def _counts(self, given: Sequence[int] | None, elements: int) -> list[int]:
        size = self._native.size
        if given is None:
            if elements % size != 0:
                raise ValueError(
                    f"{elements} elements are no equal parts for {size} ranks; Reduce_scatter "
                    "takes unequal ones as recvcounts"
                )
            return [elements // size] * size
        counts = [int(count) for count in given]
        if len(counts) != size or sum(counts) != elements or min(counts) < 0:
            raise ValueError(
                f"recvcounts must be {size} numbers that add up to sendbuf's {elements} elements, "
                f"not {counts}"
            )
        return counts


def _is_in_place(buffer: Any) -> bool:
    mpi = sys.modules.get("mpi4py.MPI")
    # An array would be compared element by element.
    return mpi is not None and buffer is mpi.IN_PLACE


def _op_name(op: Any) -> str:
    if isinstance(op, str):
        return op
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        for name, ours in _OPS.items():
            if op == getattr(mpi, name):
                return ours
    raise TypeError(f"op {op!r} is not supported; give one of MPI.{', MPI.'.join(_OPS)} or a name")


def _input(buffer: Any, name: str) -> torch.Tensor:
    _reject_list(buffer, name)
    host, device = as_host_copy(buffer, name)
    if device is None:
        return host.contiguous()
    host.copy_(device)
    return host


class _Output:
    """Memory that a call writes: the caller's, or the host's in the stead of a device's.

    Attributes
    ----------
    host : torch.Tensor
        What the call writes; where `is_read`, it holds what the buffer does.
    """

    def __init__(self, buffer: Any, name: str, *, is_read: bool) -> None:
        _reject_list(buffer, name)
        if _is_in_place(buffer):
            raise TypeError("MPI.IN_PLACE stands for sendbuf, never for recvbuf")
        try:
            read_only = memoryview(buffer).readonly
        except (TypeError, ValueError, BufferError):
            read_only = False  # No buffer protocol, as with torch's tensors: DLPack then.
        if read_only:
            raise ValueError(f"{name} is read-only")
        self.host, self._device = as_host_copy(buffer, name, written=True)
        view = self.host if self._device is None else self._device
        if not view.is_contiguous():
            raise ValueError(f"{name} is not contiguous; give a contiguous array to receive into")
        if is_read and self._device is not None:
            self.host.copy_(self._device)

    def deliver(self) -> None:
        """Bring the result to the caller's memory; it is there when this returns."""
        if self._device is not None:
            self._device.copy_(self.host)


def _reject_list(buffer: Any, name: str) -> None:
    if isinstance(buffer, (list, tuple)):
        raise TypeError(
            f"{name} is a {type(buffer).__name__}; give the array alone, its dtype is used"
        )


def _type_name(tensor: torch.Tensor, name: str) -> str:
    try:
        return TYPES[tensor.dtype]
    except KeyError:
        raise TypeError(
            f"{name} is {tensor.dtype}; known are {', '.join(TYPES.values())}"
        ) from None


def _check_pair(source: torch.Tensor, result: torch.Tensor, elements: int, what: str) -> None:
    if source.dtype != result.dtype:
        raise ValueError(f"sendbuf is {source.dtype}, but recvbuf is {result.dtype}")
    if source.numel() != elements:
        raise ValueError(f"sendbuf has {source.numel()} elements; {what} is {elements}")
