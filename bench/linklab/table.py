"""The whole table: shapes of labs x rates x operations x sizes, every contender in each."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from linklab import measure, peers
from linklab.network import LabError, laboratory
from linklab.topology import Lab, rate_name

_BASES = ["gloo", "exact", "agoq"]


@dataclass(frozen=True)
class Plan:
    """What the table covers."""

    shapes: Sequence[tuple[int, int]]
    rates: Sequence[int | None]
    operations: Sequence[str]
    sizes: Sequence[int]
    iterations: int
    mpiruns: Sequence[str] = ()


def new_results() -> dict[str, Any]:
    """Return results without rows, on this machine."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "missing": {},
        "rows": [],
    }


def measure_all(plan: Plan, results: dict[str, Any], say: Callable[[str], None]) -> None:
    """Measure row after row into `results`, so that an interrupted run keeps what it has.

    A row that fails says so and does not stop the others.
    """
    mpis, missing = peers.find_mpis(plan.mpiruns)
    contenders = list(_BASES)
    without_oneccl = peers.find_oneccl()
    if without_oneccl is None:
        contenders.append("ccl")
    else:
        missing["oneCCL"] = without_oneccl
    for what, why in missing.items():
        say(f"not measured: {what}: {why}")
    results["missing"] = missing
    for hosts, per_host in plan.shapes:
        for rate in plan.rates:
            with laboratory(Lab(hosts, per_host, rate)) as lab:
                for operation in plan.operations:
                    for size in plan.sizes:
                        row = _row(lab, operation, size, contenders, mpis, plan.iterations)
                        results["rows"].append(row)
                        say(markdown_row(row))


def _row(
    lab: Lab,
    operation: str,
    size: int,
    contenders: list[str],
    mpis: list[peers.Mpi],
    iterations: int,
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "lab": lab.name,
        "rate": rate_name(lab.rate),
        "operation": operation,
        "size": size,
        "median_ms": {},
        "agoq_faster_than": {},
        "egress": [],
        "failures": [],
    }

    def compare(names: list[str], mpi: peers.Mpi | None = None) -> None:
        results = measure.times(lab, operation, size, names, iterations, mpi)
        for name, result in results.items():
            label = mpi.family if mpi is not None and name == "mpi" else name
            if not (mpi is not None and name == "agoq"):
                row["median_ms"][label] = result["median_us"] / 1e3
            if result["valid"] is False:
                row["failures"].append(f"{label}: relative error {result['relative_error']:.2e}")
        agoq = results["agoq"]
        row["agoq_faster_than"][mpi.family if mpi is not None else names[0]] = agoq["ratio"]
        for name in names[1:]:
            if name != "agoq":
                # Both are known against the base, round by round; their quotient is of medians.
                row["agoq_faster_than"][name] = agoq["ratio"] / results[name]["ratio"]

    _attempt(row, "times", partial(compare, contenders))
    for mpi in mpis:
        _attempt(row, mpi.family, partial(compare, ["mpi", "agoq"], mpi))

    def count(contender: str) -> None:
        row["egress"].append(measure.egress(lab, operation, contender, size).as_dict())

    for contender in ("exact", "agoq"):
        _attempt(row, f"egress of {contender}", partial(count, contender))
    return row


def _attempt(row: dict[str, Any], what: str, do: Callable[[], Any]) -> None:
    try:
        do()
    except LabError as error:
        row["failures"].append(f"{what}: {error}")


_COLUMNS = [
    "Lab",
    "Link",
    "Operation",
    "MiB",
    "ms: gloo",
    "exact",
    "agoq",
    "others",
    "agoq faster than gloo",
    "than exact",
    "than others",
    "egress/formula: exact",
    "agoq",
    "failed",
]


def markdown_head() -> str:
    """Return the heading of the table."""
    return "| " + " | ".join(_COLUMNS) + " |\n|" + "---|" * len(_COLUMNS)


def markdown_row(row: dict[str, Any]) -> str:
    """Return one line of the table; a dash where nothing was measured."""
    times, ratios = row["median_ms"], row["agoq_faster_than"]
    egress = {entry["contender"]: entry for entry in row["egress"]}

    def known(values: dict[str, float], name: str, digits: int) -> str:
        return f"{values[name]:.{digits}f}" if name in values else "-"

    def others(values: dict[str, float], digits: int) -> str:
        names = [name for name in values if name not in _BASES]
        return ", ".join(f"{name} {values[name]:.{digits}f}" for name in names) or "-"

    fields = [
        row["lab"],
        row["rate"],
        row["operation"],
        f"{row['size'] / 2**20:g}",
        *(known(times, name, 1) for name in _BASES),
        others(times, 1),
        known(ratios, "gloo", 2),
        known(ratios, "exact", 2),
        others(ratios, 2),
        *(f"{egress[n]['ratio']:.4f}" if n in egress else "-" for n in ("exact", "agoq")),
        "; ".join(failure.splitlines()[0] for failure in row["failures"]) or "-",
    ]
    return "| " + " | ".join(fields) + " |"


def markdown(results: dict[str, Any]) -> str:
    """Return the table, and what is missing in it."""
    lines = [markdown_head(), *map(markdown_row, results["rows"])]
    absent = [f"- {what}: {why}." for what, why in results["missing"].items()]
    note = ["", "Not measured:", "", *absent] if absent else []
    return "\n".join([*lines, *note]) + "\n"


def all_held(results: dict[str, Any]) -> bool:
    """Whether nothing failed and all bytes were those of the formulas."""
    return all(
        not row["failures"] and all(entry["holds"] for entry in row["egress"])
        for row in results["rows"]
    )


def write(path: Path, text: str) -> None:
    """Write a file, making its directory if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_json(path: Path, results: dict[str, Any]) -> None:
    """Write the results with everything that was measured."""
    write(path, json.dumps(results, indent=1) + "\n")
