"""What a rank of the lab runs: every case of a list, one after the other, in one process.

Usage: ``python -m linklab.worker FOLDER``, under a launcher. FOLDER has cases.json; rank 0 writes
results.jsonl there, one line a case, and asks for other rates (see `session`).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
from _common import errors, launcher
from _common.buffers import Buffers
from _common.collectives import MpiCollectives, TorchCollectives
from _common.command_line import DTYPES
from _common.workload import Workload
from linklab import egress, session
from linklab.cases import Case
from linklab.core import CoreCollectives
from linklab.oneccl import OneCcl
from osu_allgather import AllGather
from osu_allreduce import AllReduce
from osu_reduce_scatter import ReduceScatter

_WORKLOADS = {"allreduce": AllReduce, "reduce_scatter": ReduceScatter, "allgather": AllGather}
# All-gather is quantized too, as it is not by default: whoever compares wants to see what it gains.
_QUANTIZED = ("all_reduce", "reduce_scatter", "all_gather")
_VARIANTS: dict[str, dict[str, Any]] = {
    "agoq": {"quantize": _QUANTIZED},
    "flat": {"quantize": _QUANTIZED, "algorithm": "flat"},
    "exact": {"quantize": ()},
}
_FEWEST, _MOST = 3, 25  # rounds; three only where one takes longer than a row should


class _Contenders:
    """Groups and communicators by name and transport, made once."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], Any] = {}
        self._groups: dict[tuple[str, str], dist.ProcessGroup] = {}

    def calls(self, name: str, transport: str) -> Any:
        key = (name, transport)
        if key not in self._calls:
            self._calls[key] = self._make(key)
        return self._calls[key]

    def _make(self, key: tuple[str, str]) -> Any:
        name, transport = key
        if name == "mpi":
            return MpiCollectives(launcher.mpi_world("the contender mpi").Dup())
        if name == "oneCCL":
            return OneCcl()
        if name == "core":
            return CoreCollectives(transport)
        if name in _VARIANTS:
            options = agoq_comm.Options(transport=transport, **_VARIANTS[name])
            self._groups[key] = dist.new_group(backend="agoq", pg_options=options)
        else:
            self._groups[key] = dist.new_group(backend=name)
        return TorchCollectives(self._groups[key])

    def describe(self, name: str, transport: str) -> str | None:
        """What agoq says of a group; None for others."""
        group = self._groups.get((name, transport))
        return agoq_comm.describe(group) if name in _VARIANTS else None


def _workload(case: Case) -> Workload:
    dtype = DTYPES[case.dtype]
    count = max(1, case.size // dtype.itemsize)
    if case.operation == "allgather":
        count = max(1, count // dist.get_world_size())  # OMB's size is that of one rank's part
    return _WORKLOADS[case.operation](count, Buffers(dtype, torch.device("cpu")))


def _slowest(seconds: float) -> float:
    own = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(own, dist.ReduceOp.MAX)
    return own.item()


def _time_round(
    case: Case, workload: Workload, calls: list[Any], turn: int, meter: egress.Meter
) -> list[float]:
    """Seconds of the slowest rank by contender; nobody always follows the same one."""
    seconds = [0.0] * len(calls)
    for place in range(len(calls)):
        index = (place + turn) % len(calls)
        workload.prepare()
        before = egress.counters()  # Another rank of this host may leave the barrier first.
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(case.calls):
            workload.run(calls[index])
        seconds[index] = time.perf_counter() - begin
        dist.barrier()  # What a rank has sent has arrived when all others are done.
        meter.add(index, before)
    return [_slowest(own) / case.calls for own in seconds]


def _check(case: Case, workload: Workload, call: Any, name: str) -> dict[str, Any]:
    workload.prepare()
    workload.run(call)
    error = workload.error()
    assert error is not None
    bound = errors.error_bound(DTYPES[case.dtype], case.ranks, name in ("agoq", "flat"))
    return {"relative_error": error, "valid": error <= bound}


def _measure(
    case: Case, workload: Workload, calls: list[Any], seconds: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Return seconds by contender and round, and bytes a call by contender and host."""
    unmeasured = egress.Meter(len(calls))
    warm = sum(_time_round(case, workload, calls, 0, unmeasured)) * case.calls
    rounds = max(_FEWEST, min(_MOST, int(seconds / max(warm, 1e-9))))
    meter = egress.Meter(len(calls))
    times = [_time_round(case, workload, calls, turn, meter) for turn in range(rounds)]
    sent = meter.collect(case.ranks_per_host) if case.hosts > 1 else []
    by_contender = range(len(calls))
    return (
        [[row[index] for row in times] for index in by_contender],
        [[host[index] / (rounds * case.calls) for host in sent] for index in by_contender],
    )


def _run_case(case: Case, contenders: _Contenders, link: session.Link, seconds: float) -> Any:
    # Only what is timed needs slow links.
    link.set(None)
    workload = _workload(case)
    calls = [contenders.calls(name, case.transport) for name in case.contenders]
    checks = [
        _check(case, workload, call, name)
        for name, call in zip(case.contenders, calls, strict=True)
    ]
    link.set(case.rate)
    times, sent = _measure(case, workload, calls, seconds)
    return {
        name: {
            "seconds": times[index],
            "egress_bytes": sent[index],
            "describe": contenders.describe(name, case.transport),
            **checks[index],
        }
        for index, name in enumerate(case.contenders)
    }


def main() -> int:
    """Measure the cases of the folder that the command line names."""
    folder = Path(sys.argv[1])
    wanted = json.loads((folder / session.CASES).read_text())
    launcher.adopt_mpirun_variables()
    torch.set_num_threads(1)
    launcher.join()
    contenders = _Contenders()
    link = session.Link(folder)
    for fields in wanted["cases"]:
        begin = time.monotonic()
        result = _run_case(Case.from_dict(fields), contenders, link, wanted["seconds"])
        if dist.get_rank() == 0:
            line = {**fields, "took": time.monotonic() - begin, "contenders": result}
            with (folder / session.RESULTS).open("a") as stream:
                stream.write(json.dumps(line) + "\n")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
