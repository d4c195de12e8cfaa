"""The whole table: every case, every contender in each, and what came out."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from linklab import formulas, peers, session
from linklab.cases import Case
from linklab.network import LabError, laboratory
from linklab.topology import Lab

TOLERANCE = 0.01  # of bytes on the interfaces, beside the formula
_ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
OURS = ("core", "exact", "agoq", "flat")


def new_results() -> dict[str, Any]:
    """Return results without rows, on this machine."""
    return {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "missing": {},
        "failures": [],
        "rows": [],
    }


def keep_rows(results: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Add recorded rows that `results` has not measured again, in front of its own."""

    def key(row: dict[str, Any]) -> tuple[str, str]:
        return row["name"], row["launcher"]

    for what in ("rows", "failures"):
        new = {key(row) for row in results["rows"] + results["failures"]}
        old = [row for row in recorded[what] if key(row) not in new]
        results[what] = old + results[what]


def measure_all(
    cases: Sequence[Case],
    results: dict[str, Any],
    seconds: float,
    budget: float,
    mpis: Iterable[peers.Mpi],
    on_row: Callable[[dict[str, Any]], None],
) -> None:
    """Measure case after case into `results`, so that an interrupted run keeps what it has.

    A start of ranks that fails says so and does not stop the others; where the budget (seconds)
    ends, the remaining cases are failures that say so.
    """
    deadline = time.monotonic() + budget
    launchers: list[peers.Mpi | None] = [None, *mpis]
    # Every MPI comes after our own comparisons: these matter more where time runs out.
    for mpi in launchers:
        for layout in dict.fromkeys((case.hosts, case.ranks_per_host) for case in cases):
            wanted = [
                case
                for case in cases
                if (case.hosts, case.ranks_per_host) == layout
                and (mpi is None or case.against_peers)
            ]
            if wanted:
                _measure_layout(wanted, mpi, results, seconds, deadline, on_row)


def _measure_layout(
    cases: Sequence[Case],
    mpi: peers.Mpi | None,
    results: dict[str, Any],
    seconds: float,
    deadline: float,
    on_row: Callable[[dict[str, Any]], None],
) -> None:
    launcher = "direct" if mpi is None else mpi.family
    done: set[str] = set()

    def on_result(measured: dict[str, Any]) -> None:
        row = make_row(measured, launcher)
        results["rows"].append(row)
        done.add(row["name"])
        on_row(row)

    try:
        left = deadline - time.monotonic()
        if left <= 0:
            raise LabError("the time budget was spent")
        with laboratory(Lab(cases[0].hosts, cases[0].ranks_per_host)) as lab:
            session.run(lab, cases, seconds, left, mpi, on_result)
    except LabError as error:
        for case in cases:
            if case.name not in done:
                results["failures"].append(
                    {"name": case.name, "launcher": launcher, "why": str(error)}
                )


def make_row(measured: dict[str, Any], launcher: str) -> dict[str, Any]:
    """Return one case's measurements with medians, ratios and formulas.

    A ratio is the median over the rounds of one contender's time over another's in that round.
    """
    case = Case.from_dict(measured)
    contenders: dict[str, Any] = {}
    for name, result in measured["contenders"].items():
        label = launcher if name == "mpi" else name
        contenders[label] = {
            "median_ms": 1e3 * statistics.median(result["seconds"]),
            **result,
            **_egress(case, name, result["egress_bytes"]),
        }
    ratios = {
        f"{fast}/{slow}": statistics.median(
            base / own
            for base, own in zip(
                contenders[slow]["seconds"], contenders[fast]["seconds"], strict=True
            )
        )
        for fast in contenders
        for slow in contenders
        if fast in OURS and fast != slow
    }
    return {**measured, "launcher": launcher, "contenders": contenders, "faster": ratios}


def _egress(case: Case, contender: str, sent: list[float]) -> dict[str, Any]:
    """Beside the formula where one is known; else whether bytes went around the links."""
    if not sent:
        return {}
    what = (case.operation, contender, case.size, _ITEMSIZE[case.dtype])
    around = min(sent) < 0.99 * formulas.at_least(case.hosts, *what)
    expected = formulas.expected(case.hosts, case.ranks_per_host, *what)
    if expected is None:
        return {"went_around_the_links": around}
    ratio = max((bytes_out / expected for bytes_out in sent), key=lambda r: abs(r - 1))
    return {
        "went_around_the_links": around,
        "egress_expected": expected,
        "egress_ratio": ratio,
        "egress_holds": abs(ratio - 1) <= TOLERANCE,
    }


def problems(results: dict[str, Any]) -> list[str]:
    """Return what is wrong with the results, a sentence each: errors, bytes, failed starts."""
    found = []
    for row in results["rows"]:
        for name, result in row["contenders"].items():
            where = f"{row['name']} ({row['launcher']}), {name}"
            if not result["valid"]:
                found.append(f"{where}: relative error {result['relative_error']:.2e}")
            if result.get("went_around_the_links"):
                found.append(f"{where}: bytes went around the links, through shared memory")
            if not result.get("egress_holds", True):
                found.append(f"{where}: sent {result['egress_ratio']:.4f} of the formula's bytes")
    for failure in results["failures"]:
        # What a rank printed: how it ended comes first, and why last.
        lines = [line for line in failure["why"].splitlines() if line.strip()]
        why = " ... ".join(dict.fromkeys([lines[0], lines[-1]]))
        found.append(f"{failure['name']} ({failure['launcher']}): {why}")
    return found


def write(path: Path, text: str) -> None:
    """Write a file, making its directory if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Write the results with everything that was measured."""
    write(path, json.dumps(results, indent=1) + "\n")
