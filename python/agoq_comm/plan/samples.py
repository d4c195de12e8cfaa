"""Reads measured times: of the lab of slow links, and of the OSU-style programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agoq_comm.plan.algorithms import Operation

__all__ = ["Sample", "read_samples"]

# What a contender of the benchmarks runs, flat and in two levels.
_ALGORITHMS = {
    "exact": ("two_phase", "exact_two_level"),
    "agoq": ("flat", "two_level"),
    "flat": ("flat", "flat"),
}
_OPERATIONS = {
    "allreduce": Operation.ALL_REDUCE,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "allgather": Operation.ALL_GATHER,
}
_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
# Of shorter messages Python and the schedulers of the ranks take more than what is modelled.
_LEAST_BYTES = 2**20


@dataclass(frozen=True)
class Sample:
    """One measured time.

    Attributes
    ----------
    bandwidth : float
        Bytes a second between nodes, as the link is called; infinite where there is one node.
    cores_per_rank : float
        Below 1 where ranks shared cores.
    """

    name: str
    ranks: int
    per_node: int
    bandwidth: float
    algorithm: str
    operation: Operation
    count: int
    itemsize: int
    cores_per_rank: float
    seconds: float


def read_samples(path: Path) -> list[Sample]:
    """Return what this library's algorithms took.

    Parameters
    ----------
    path : Path
        JSON of ``python -m linklab table``, or of ``bench/osu_*.py --json`` with all ranks on one
        host, each with a core of its own.

    Raises
    ------
    ValueError
        The file is neither.
    """
    results = json.loads(path.read_text())
    if "rows" in results and "cores" in results:
        return list(_of_linklab(results))
    if "results" in results and "benchmark" in results:
        return list(_of_osu(results))
    raise ValueError(f"plan: {path} is no result of linklab or of an OSU-style program")


def algorithm_of(contender: str, described: str) -> str:
    """What `agoq_comm.describe` said of the group tells whether it took two levels."""
    return _ALGORITHMS[contender]["algorithm two_level" in described]


def _of_linklab(results: dict[str, Any]) -> Iterator[Sample]:
    for row in results["rows"]:
        # Rows under an MPI are the same again; sockets within a host are not modelled.
        local = row["hosts"] == 1
        if row["launcher"] != "direct" or (local and row["transport"] != "shm"):
            continue
        if row["size"] < _LEAST_BYTES or (not local and row["rate"] is None):
            continue
        ranks = row["hosts"] * row["ranks_per_host"]
        itemsize = _ITEMSIZE[row["dtype"]]
        for name, measured in row["contenders"].items():
            if name not in _ALGORITHMS:
                continue
            yield Sample(
                name=f"{row['name']}, {name}",
                ranks=ranks,
                per_node=row["ranks_per_host"],
                bandwidth=math.inf if local else row["rate"] / 8,
                algorithm=algorithm_of(name, measured["describe"]),
                operation=_OPERATIONS[row["operation"]],
                count=row["size"] // itemsize,
                itemsize=itemsize,
                cores_per_rank=min(1.0, results["cores"] / ranks),
                seconds=measured["median_ms"] / 1e3,
            )


def _of_osu(results: dict[str, Any]) -> Iterator[Sample]:
    operation = _OPERATIONS.get(results["benchmark"].lower())
    if operation is None:
        raise ValueError(f"plan: {results['benchmark']} is not modelled")
    ranks, itemsize = results["ranks"], _ITEMSIZE[results["dtype"]]
    for row in results["results"]:
        # OMB's size of an all-gather is one rank's part.
        size = row["size"] * (ranks if operation is Operation.ALL_GATHER else 1)
        if row["contender"] in _ALGORITHMS and size >= _LEAST_BYTES:
            yield Sample(
                name=f"{results['benchmark']} {size} bytes, {row['contender']}",
                ranks=ranks,
                per_node=ranks,
                bandwidth=math.inf,
                algorithm=algorithm_of(row["contender"], ""),
                operation=operation,
                count=size // itemsize,
                itemsize=itemsize,
                cores_per_rank=1.0,
                seconds=row["median_us"] / 1e6,
            )
