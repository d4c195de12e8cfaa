"""What the measurements are held to, and whether they reach it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from linklab.cases import MIB, Case
from linklab.peers import ONECCL


@dataclass(frozen=True)
class Target:
    """A ratio of times that a row must reach.

    Attributes
    ----------
    row
        Name of the case.
    fast, bases
        `fast` must be so many times faster than the best of `bases`.
    at_least
        The ratio.
    """

    row: str
    fast: str
    bases: tuple[str, ...]
    at_least: float


@dataclass(frozen=True)
class Verdict:
    """A target beside what was measured; None where it was not."""

    what: str
    wanted: str
    measured: float | None
    met: bool | None

    @property
    def word(self) -> str:
        """For people."""
        return {None: "not measured", True: "met", False: "MISSED"}[self.met]


_G = 10**9
_MPI_OR_CCL = ("Intel MPI", ONECCL)


def _shaped(layout: tuple[int, int], gigabits: int, **fields: Any) -> str:
    return Case(*layout, gigabits * _G, **fields).name


def _local(ranks: int, transport: str, **fields: Any) -> str:
    return Case(1, ranks, None, transport=transport, **fields).name


TARGETS: tuple[Target, ...] = (
    Target(_shaped((2, 1), 1), "agoq", ("gloo",), 3.93),
    Target(_shaped((2, 1), 5), "agoq", ("exact",), 3.9),
    *(
        Target(_shaped((2, 1), 10, size=size * MIB), "agoq", (base,), wanted)
        for size in (16, 64, 256)
        for base, wanted in (("gloo", 4.0), ("exact", 3.4))
    ),
    Target(_shaped((4, 1), 1), "agoq", ("gloo",), 3.9),
    Target(_local(2, "shm"), "agoq", ("gloo",), 5.5),
    Target(_local(2, "shm"), "agoq", _MPI_OR_CCL, 2.7),
    Target(_local(4, "shm"), "agoq", ("gloo",), 5.0),
    Target(_local(4, "shm"), "agoq", (ONECCL,), 3.5),
    Target(_local(2, "tcp", size=4096), "exact", ("gloo",), 40.0),
    Target(_local(2, "shm", size=4096), "exact", ("gloo",), 200.0),
    Target(_local(2, "shm", size=4096), "core", ("gloo",), 200.0),
    Target(_local(2, "tcp"), "exact", ("gloo",), 1.8),
    Target(_shaped((2, 1), 1, operation="reduce_scatter"), "agoq", ("gloo",), 3.9),
    Target(_shaped((2, 1), 1, operation="allgather"), "agoq", ("gloo",), 3.9),
    Target(_shaped((2, 1), 1, dtype="bfloat16"), "agoq", ("exact",), 1.95),
    Target(_shaped((2, 2), 1), "agoq", ("flat",), 1.8),
)

_EGRESS_ROW = _shaped((2, 2), 1)
# Operation, what bounds it, and the part of the bound's speed that it must reach. By segment, as an
# all-reduce has the codec work: what one step leaves in a cache the next may use.
CODEC: tuple[tuple[str, str, float], ...] = (
    ("encode, by segment", "read", 0.90),
    ("sum_encode, in place, by segment", "copy in place", 0.90),
)
CODEC_ELEMENTS = 16 * MIB


def check(results: dict[str, Any], codec: dict[str, Any] | None) -> Iterator[Verdict]:
    """Compare a table's results, and those of codec_bench, with all targets."""
    for target in TARGETS:
        ratios = [_ratio(results, target, base) for base in target.bases]
        known = [ratio for ratio in ratios if ratio is not None]
        measured = min(known) if len(known) == len(ratios) else None
        yield Verdict(
            f"{target.row}: {target.fast} faster than {' and '.join(target.bases)}",
            f">= {target.at_least:g}",
            measured,
            None if measured is None else measured >= target.at_least,
        )
    yield _egress(results)
    for operation, bound, wanted in CODEC:
        measured = _codec_ratio(codec, operation, bound)
        yield Verdict(
            f"{operation}, fp32 from memory, beside its bound: {bound}",
            f">= {wanted:g}",
            measured,
            None if measured is None else measured >= wanted,
        )


def _ratio(results: dict[str, Any], target: Target, base: str) -> float | None:
    for row in results["rows"]:
        ratio = row["faster"].get(f"{target.fast}/{base}")
        if row["name"] == target.row and ratio is not None:
            return ratio
    return None


def _egress(results: dict[str, Any]) -> Verdict:
    measured = None
    for row in results["rows"]:
        if row["name"] == _EGRESS_ROW and row["launcher"] == "direct":
            measured = row["contenders"]["agoq"]["egress_ratio"]
    met = None if measured is None else abs(measured - 1) <= 0.01
    return Verdict(f"{_EGRESS_ROW}: bytes beside the formula", "1.00 +- 1 %", measured, met)


def _codec_ratio(codec: dict[str, Any] | None, operation: str, bound: str) -> float | None:
    """Return the bound's time over that of the fastest instruction set, as the library chooses."""
    wanted = (operation, "float32", CODEC_ELEMENTS, bound)
    rows = [
        row
        for row in ([] if codec is None else codec["rows"])
        if (row["operation"], row["type"], row["elements"], row["bound"]) == wanted
    ]
    if not rows:
        return None
    return min(rows, key=lambda row: row["seconds"])["bound_ratio"]
