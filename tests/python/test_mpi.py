"""agoq_comm.mpi, over threads that stand in for ranks, and over a real MPI where there is one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import agoq_comm
from agoq_comm import _cuda, mpi
from strategies import bits

IN_PLACE = object()


class ThreadedMpi:
    """What agoq_comm.mpi uses of an mpi4py communicator, among threads."""

    def __init__(self, rank: int, meeting: threading.Barrier, box: list[Any]) -> None:
        self._rank, self._meeting, self._box = rank, meeting, box

    def Get_rank(self) -> int:  # noqa: N802 - mpi4py's name
        return self._rank

    def Get_size(self) -> int:  # noqa: N802 - mpi4py's name
        return len(self._box)

    def Barrier(self) -> None:  # noqa: N802 - mpi4py's name
        self._meeting.wait()

    def allgather(self, value: Any) -> list[Any]:
        self._box[self._rank] = value
        self._meeting.wait()
        values = list(self._box)
        self._meeting.wait()
        return values

    def bcast(self, value: Any, root: int) -> Any:
        return self.allgather(value)[root]


def run(size: int, function: Callable[[mpi.Comm], Any], **options: Any) -> list[Any]:
    """What `function` returns on each rank; raises what the lowest failing rank raised."""
    meeting, box = threading.Barrier(size, timeout=60), [None] * size
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def body(rank: int) -> None:
        chosen = agoq_comm.Options(**options)
        chosen._timeout = timedelta(seconds=60)
        try:
            results[rank] = function(mpi.Comm(ThreadedMpi(rank, meeting, box), chosen))
        except BaseException as error:
            errors[rank] = error

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    for error in errors:
        if error is not None:
            raise error
    return results


@pytest.fixture(autouse=True)
def mpi4py(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A stand-in for mpi4py.MPI's constants, where these tests need no MPI."""
    names = ("SUM", "PROD", "MIN", "MAX", "BAND", "BOR", "BXOR", "MAXLOC")
    constants = types.SimpleNamespace(IN_PLACE=IN_PLACE, **{name: object() for name in names})
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", constants)
    monkeypatch.delenv("AGOQ_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    return constants


def _numbers(rank: int, count: int = 50_000) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_allreduce_gives_the_bits_of_the_inproc_group(transport: str) -> None:
    def reduce(comm: mpi.Comm) -> np.ndarray:
        result = np.empty(50_000, np.float32)
        comm.Allreduce(_numbers(comm.Get_rank()), result)
        return result

    threads = agoq_comm.inproc_group(3)
    expected: list[Any] = [None] * 3

    def reference(rank: int) -> None:
        expected[rank] = threads[rank].all_reduce(_numbers(rank))

    workers = [threading.Thread(target=reference, args=(rank,)) for rank in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for result in run(3, reduce, transport=transport):
        assert bits(torch.from_numpy(result)) == bits(expected[0])


@pytest.mark.parametrize(
    "name,expected", [("SUM", 6), ("PROD", 6), ("MIN", 1), ("MAX", 3), ("BOR", 3), ("BXOR", 0)]
)
def test_operations_of_mpi4py_are_understood(
    mpi4py: types.SimpleNamespace, name: str, expected: int
) -> None:
    def reduce(comm: mpi.Comm) -> np.ndarray:
        result = np.empty(5, np.int32)
        comm.Allreduce(np.full(5, comm.Get_rank() + 1, np.int32), result, op=getattr(mpi4py, name))
        return result

    for result in run(3, reduce):
        assert result.tolist() == [expected] * 5


def test_in_place_and_torch_tensors() -> None:
    def reduce(comm: mpi.Comm) -> torch.Tensor:
        x = torch.full((4, 5), comm.Get_rank() + 1.0)
        comm.Allreduce(IN_PLACE, x)
        return x

    for result in run(2, reduce):
        assert torch.equal(result, torch.full((4, 5), 3.0))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("counts", [None, [2, 0, 7]])
def test_reduce_scatter_gives_each_rank_its_part(in_place: bool, counts: list[int] | None) -> None:
    lengths = [3, 3, 3] if counts is None else counts

    def reduce(comm: mpi.Comm) -> np.ndarray:
        source = np.arange(9, dtype=np.int64) * 10 ** comm.Get_rank()
        own = lengths[comm.Get_rank()]
        if in_place:
            comm.Reduce_scatter(IN_PLACE, source, counts)
            return source[:own]
        result = np.empty(own, np.int64)
        comm.Reduce_scatter(source, result, counts)
        return result

    assert np.concatenate(run(3, reduce)).tolist() == [111 * i for i in range(9)]


@pytest.mark.parametrize("in_place", [False, True])
def test_allgather_collects_in_rank_order(in_place: bool) -> None:
    def gather(comm: mpi.Comm) -> np.ndarray:
        everything = np.zeros((3, 4), np.float64)
        own = np.full(4, comm.Get_rank() + 0.5)
        if in_place:
            everything[comm.Get_rank()] = own
            comm.Allgather(IN_PLACE, everything)
        else:
            comm.Allgather(own, everything)
        return everything

    for result in run(3, gather):
        assert result[:, 0].tolist() == [0.5, 1.5, 2.5]
        assert (result == result[:, :1]).all()


def test_allgather_quantizes_where_the_options_say_so() -> None:
    def gather(comm: mpi.Comm) -> dict[str, Any]:
        everything = np.empty(100_000, np.float32)
        comm.Allgather(_numbers(comm.Get_rank()), everything)
        exact = np.concatenate([_numbers(0), _numbers(1)])
        error = np.linalg.norm(everything - exact) / np.linalg.norm(exact)
        return {"error": error, **comm.stats()["all_gather"]}

    for seen in run(2, gather, quantize=("all_gather",)):
        assert seen["quantized_calls"] == 1 and 0 < seen["error"] < 0.01


READ_ONLY = np.zeros(4, np.float32)
READ_ONLY.flags.writeable = False
FOUR = np.zeros(4, np.float32)
BAD_CALLS: dict[str, tuple[type[Exception], Callable[[mpi.Comm], None]]] = {
    "recvbuf's number of elements is 5": (
        ValueError,
        lambda c: c.Allreduce(FOUR, np.zeros(5, "f")),
    ),
    "sendbuf is torch.float32, but recvbuf is torch.float64": (
        ValueError,
        lambda c: c.Allreduce(FOUR, np.zeros(4)),
    ),
    "recvbuf is read-only": (ValueError, lambda c: c.Allreduce(FOUR, READ_ONLY)),
    "recvbuf is not contiguous": (ValueError, lambda c: c.Allreduce(FOUR, np.zeros(8, "f")[::2])),
    "recvbuf is a list": (TypeError, lambda c: c.Allreduce(FOUR, [FOUR, "MPI.FLOAT"])),
    "never for recvbuf": (TypeError, lambda c: c.Allreduce(FOUR, IN_PLACE)),
    "is not supported; give one of MPI.SUM": (
        TypeError,
        lambda c: c.Allreduce(FOUR, FOUR.copy(), op=sys.modules["mpi4py.MPI"].MAXLOC),
    ),
    "unknown reduce op": (ValueError, lambda c: c.Allreduce(FOUR, FOUR.copy(), op="mean")),
    "no equal parts for 2 ranks": (
        ValueError,
        lambda c: c.Reduce_scatter(np.zeros(5, "f"), np.zeros(2, "f")),
    ),
    "recvcounts must be 2 numbers that add up to": (
        ValueError,
        lambda c: c.Reduce_scatter(FOUR, np.zeros(2, "f"), [1, 2]),
    ),
    "recvbuf must hold 2 elements": (
        ValueError,
        lambda c: c.Reduce_scatter(FOUR, np.zeros(3, "f")),
    ),
    "1/2 of recvbuf's elements is 2": (ValueError, lambda c: c.Allgather(FOUR, FOUR.copy())),
}


def test_errors_say_what_is_wrong_and_leave_the_communicator_usable() -> None:
    def misuse(comm: mpi.Comm) -> np.ndarray:
        for words, (kind, call) in BAD_CALLS.items():
            with pytest.raises(kind) as caught:
                call(comm)
            assert words in str(caught.value), str(caught.value)
        result = np.empty(4, np.float32)
        comm.Allreduce(np.ones(4, np.float32), result)
        return result

    for result in run(2, misuse):
        assert result.tolist() == [2.0] * 4


def test_every_rank_hears_that_rank_0_has_no_such_interface(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AGOQ_SOCKET_IFNAME", "nosuch0")
    meeting, box, heard = threading.Barrier(2, timeout=30), [None] * 2, []

    def body(rank: int) -> None:
        try:
            mpi.Comm(ThreadedMpi(rank, meeting, box))
        except RuntimeError as error:
            heard.append(str(error))

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(heard) == 2 and all("'nosuch0'" in message for message in heard), heard


def test_transport_gloo_needs_a_process_group_and_says_so() -> None:
    with pytest.raises(ValueError, match="'gloo' needs a process group of torch"):
        run(1, lambda comm: None, transport="gloo")


class OnDevice(torch.Tensor):
    """Host memory that says it is a device's, and that no host code may touch by its address."""

    @staticmethod
    def __new__(cls, tensor: torch.Tensor) -> OnDevice:
        return tensor.as_subclass(cls)

    @property
    def is_cuda(self) -> bool:
        return True

    def data_ptr(self) -> int:
        raise AssertionError("the address of a device's memory was handed to the host")


class CudaArray:
    """An array as CuPy and Numba make them, in host memory."""

    def __init__(self, array: np.ndarray, *, read_only: bool = False) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.ctypes.data, read_only),
            "version": 3,
            "stream": 1,
        }


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A device behind the seam of `agoq_comm._cuda`; lists the streams that were waited for."""
    streams: list[int] = []
    monkeypatch.setattr(_cuda, "_available", lambda: True)
    monkeypatch.setattr(_cuda, "_wait_for", streams.append)
    monkeypatch.setattr(_cuda, "_from_interface", lambda x: OnDevice(torch.from_numpy(x.array)))
    return streams


@pytest.mark.parametrize("wrap", [CudaArray, lambda array: OnDevice(torch.from_numpy(array))])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_device_memory_is_staged(waits: list[int], wrap: Callable[..., Any], dtype: type) -> None:
    def call_all(comm: mpi.Comm) -> list[list[Any]]:
        rank = comm.Get_rank()
        own = np.arange(6, dtype=dtype) + 10 * rank
        summed, in_place, gathered = np.zeros(6, dtype), own.copy(), np.zeros((2, 6), dtype)
        gathered[rank] = own
        part, whole = np.zeros(3, dtype), own.copy()
        comm.Allreduce(wrap(own), wrap(summed))
        comm.Allreduce(IN_PLACE, wrap(in_place))
        comm.Reduce_scatter(wrap(own), wrap(part))
        comm.Reduce_scatter(IN_PLACE, wrap(whole))
        comm.Allgather(IN_PLACE, wrap(gathered))
        return [a.tolist() for a in (summed, in_place, part, whole[:3], gathered)]

    sums = [2 * i + 10 for i in range(6)]
    for rank, seen in enumerate(run(2, call_all)):
        own_sums = sums[3 * rank : 3 * rank + 3]
        everything = [[*range(6)], [*range(10, 16)]]
        assert seen == [sums, sums, own_sums, own_sums, everything]
    assert set(waits) == ({1} if wrap is CudaArray else set())


def test_device_memory_and_host_memory_go_together(waits: list[int]) -> None:
    def reduce(comm: mpi.Comm) -> tuple[np.ndarray, np.ndarray]:
        on_device, on_host = np.zeros(50_000, np.float32), np.zeros(50_000, np.float32)
        comm.Allreduce(_numbers(comm.Get_rank()), CudaArray(on_device))
        comm.Allreduce(CudaArray(_numbers(comm.Get_rank())), on_host)
        return on_device, on_host

    for on_device, on_host in run(2, reduce):
        assert np.array_equal(on_device, on_host) and on_host.any()


def test_device_memory_to_receive_in_is_checked(waits: list[int]) -> None:
    def misuse(comm: mpi.Comm) -> None:
        with pytest.raises(ValueError, match="recvbuf is read-only"):
            comm.Allreduce(FOUR, CudaArray(FOUR.copy(), read_only=True))
        with pytest.raises(ValueError, match="recvbuf is not contiguous"):
            comm.Allreduce(FOUR, CudaArray(np.zeros(8, np.float32)[::2]))

    run(2, misuse)


def test_over_a_real_mpi(tmp_path: Path) -> None:
    launcher = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpirun and mpi4py, as `pip install mpi4py mpich` brings them")
    here = Path(__file__).parent
    done = subprocess.run(
        [launcher, "-n", "2", sys.executable, str(here / "programs" / "mpi_program.py")],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            # Open MPI refuses more ranks than cores, and root, unless told.
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 ranks of" in done.stdout and "agree" in done.stdout, done.stdout
