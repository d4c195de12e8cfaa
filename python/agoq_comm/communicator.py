"""Collectives among threads of one process: the core's communicator over the inproc transport.

What a backend of torch.distributed computes between processes, these compute between threads, bit
for bit: for notebooks, for tests, and for trying a format on real gradients without a launcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from agoq_comm._arrays import as_cpu_tensor
from agoq_comm._C import Communicator as _NativeCommunicator
from agoq_comm._C import Options, make_inproc_communicators

__all__ = ["Communicator", "inproc_group"]

TYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float64: "float64",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "bool",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}


def _type_name(tensor: torch.Tensor) -> str:
    try:
        return TYPES[tensor.dtype]
    except KeyError:
        known = ", ".join(TYPES.values())
        raise TypeError(f"collectives take {known}, not {tensor.dtype}") from None


def _input(x: Any, name: str) -> torch.Tensor:
    return as_cpu_tensor(x, name).detach().contiguous()


class Communicator:
    """One rank of a group. `inproc_group` makes them.

    Thread-safe: calls of several threads run one after another. All ranks must issue the same calls
    in the same order, each from a thread of its own, since a call waits for its peers (with the GIL
    released). After an error, other than one about an argument, the group stays failed.
    """

    def __init__(self, native: _NativeCommunicator) -> None:
        self._native = native

    @property
    def rank(self) -> int:
        """This rank, in [0, size)."""
        return self._native.rank

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._native.size

    def all_reduce(
        self,
        x: Any,
        *,
        op: str = "sum",
        factor: float = 1.0,
        out: Any = None,
        timeout: timedelta | None = None,
    ) -> torch.Tensor:
        """Reduce an array over the ranks; every rank gets the result.

        Parameters
        ----------
        x : array_like
            This rank's contribution: CPU memory, of one dtype and number of elements on all ranks.
        op : str
            ``"sum"``, ``"avg"``, ``"premul_sum"`` (quantized where the options say so),
            ``"product"``, ``"min"``, ``"max"``, ``"band"``, ``"bor"`` or ``"bxor"``.
        factor : float
            For ``"premul_sum"``: the sum is multiplied by it, in fp32.
        out : array_like, optional
            Contiguous memory for the result, of `x`'s shape and dtype; may be `x`.
        timeout : datetime.timedelta, optional
            The group's by default.

        Returns
        -------
        torch.Tensor
            The reduction, the same bits on every rank.

        Raises
        ------
        RuntimeError
            A peer failed, made another call, or did not come in time: the message says which.
        """
        source = _input(x, "x")
        result = torch.empty_like(source) if out is None else as_cpu_tensor(out, "out")
        _check_like(result, source)
        self._native.all_reduce(
            source.data_ptr(),
            result.data_ptr(),
            source.numel(),
            _type_name(source),
            op,
            timeout,
            factor,
        )
        return result

    def reduce_scatter(
        self,
        inputs: Sequence[Any],
        *,
        op: str = "sum",
        factor: float = 1.0,
        timeout: timedelta | None = None,
    ) -> torch.Tensor:
        """Reduce one array for each rank over the ranks; rank r gets the reduction of inputs[r].

        Parameters
        ----------
        inputs : sequence of array_like
            One array for each rank, all of one dtype; element counts may differ.
        op, factor, timeout
            See `all_reduce`.

        Returns
        -------
        torch.Tensor
            Of the shape of ``inputs[rank]``.
        """
        sources = [_input(x, f"inputs[{r}]") for r, x in enumerate(inputs)]
        if len(sources) != self.size or len({s.dtype for s in sources}) != 1:
            raise ValueError(f"inputs must be {self.size} arrays of one dtype, one for each rank")
        result = torch.empty_like(sources[self.rank])
        self._native.reduce_scatter(
            [source.data_ptr() for source in sources],
            [source.numel() for source in sources],
            result.data_ptr(),
            _type_name(result),
            op,
            timeout,
            factor,
        )
        return result

    def all_gather(
        self,
        x: Any,
        *,
        counts: Sequence[int] | None = None,
        timeout: timedelta | None = None,
    ) -> list[torch.Tensor]:
        """Collect every rank's array on every rank.

        Parameters
        ----------
        x : array_like
            This rank's array; of one dtype on all ranks.
        counts : sequence of int, optional
            Elements of each rank's array, the same on all ranks; by default all have as many.
        timeout : datetime.timedelta, optional
            The group's by default.

        Returns
        -------
        list of torch.Tensor
            One for each rank: 1-D where `counts` is given, else of `x`'s shape.
        """
        source = _input(x, "x")
        if counts is None:
            results = [torch.empty_like(source) for _ in range(self.size)]
        else:
            results = [torch.empty(count, dtype=source.dtype) for count in counts]
        if len(results) != self.size or results[self.rank].numel() != source.numel():
            raise ValueError(
                f"counts must be {self.size} numbers, and counts[{self.rank}] the "
                f"{source.numel()} elements of x"
            )
        self._native.all_gather(
            source.data_ptr(),
            [result.data_ptr() for result in results],
            [result.numel() for result in results],
            _type_name(source),
            timeout,
        )
        return results

    def stats(self) -> dict[str, dict[str, Any]]:
        """Counters by operation, for operations that were called; see `agoq_comm.stats`."""
        return self._native.stats()

    def reset_stats(self) -> None:
        """Set all counters to zero."""
        self._native.reset_stats()

    def describe(self) -> str:
        """A few lines for people: ranks, transport, format, thresholds."""
        return self._native.describe()

    def abort(self, reason: str) -> None:
        """End the running call and fail all later ones with `reason`. Never waits."""
        self._native.abort(reason)


def _check_like(result: torch.Tensor, source: torch.Tensor) -> None:
    same = result.shape == source.shape and result.dtype == source.dtype
    if not same or not result.is_contiguous():
        raise ValueError(
            f"out must be contiguous, {source.dtype} and of shape {tuple(source.shape)}, not "
            f"{result.dtype} and {tuple(result.shape)}"
        )


def inproc_group(
    size: int, options: Options | None = None, topology: Sequence[int] | None = None
) -> list[Communicator]:
    """Make a group whose ranks are threads of this process.

    Parameters
    ----------
    size : int
        Ranks, at least 1.
    options : Options, optional
        Format, thresholds and timeout of the group.
    topology : sequence of int, optional
        A number for each rank: ranks of equal numbers are taken to share a node. By default all
        share one.

    Returns
    -------
    list of Communicator
        Element r is rank r's, to be used from a thread of its own.
    """
    natives = make_inproc_communicators(size, Options() if options is None else options, topology)
    return [Communicator(native) for native in natives]
