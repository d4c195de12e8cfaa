"""What the table measures: one `Case` a row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from linklab.topology import layout_name, parse_rate, rate_name

MIB = 2**20
OPERATIONS = ("allreduce", "reduce_scatter", "allgather")


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes
    ----------
    hosts, ranks_per_host, rate
        The lab; a rate of None leaves the links unshaped.
    operation, size, dtype
        `size` is that of the whole message in bytes: an all-gather's whole output.
    contenders
        Who is compared, call by call. "agoq" and "exact" choose algorithms by themselves, "flat"
        is agoq without two levels, "core" the exact path called without torch.
    transport
        Of agoq, exact, flat and core.
    calls
        Calls a timed round, back to back.
    against_peers
        Whether MPIs and oneCCL are compared, too.
    """

    hosts: int
    ranks_per_host: int
    rate: int | None
    operation: str = "allreduce"
    size: int = 64 * MIB
    dtype: str = "float32"
    contenders: tuple[str, ...] = ("gloo", "exact", "agoq")
    transport: str = "auto"
    calls: int = 1
    against_peers: bool = False

    @property
    def ranks(self) -> int:
        """Ranks on all hosts."""
        return self.hosts * self.ranks_per_host

    @property
    def layout(self) -> str:
        """Hosts x ranks on each, as on the command line."""
        return f"{self.hosts}x{self.ranks_per_host}"

    @property
    def name(self) -> str:
        """The row for people, and in JSON."""
        link = self.transport if self.hosts == 1 else rate_name(self.rate)
        unit, name = (MIB, "MiB") if self.size >= MIB else (1024, "KiB")
        where = layout_name(self.hosts, self.ranks_per_host)
        return f"{self.operation} {self.dtype} {self.size / unit:g} {name}, {where}, {link}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "layout": self.layout, **asdict(self)}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Case:
        """Read what `as_dict` wrote."""
        known = {k: v for k, v in fields.items() if k in Case.__dataclass_fields__}
        return Case(**{**known, "contenders": tuple(known["contenders"])})


def _shaped() -> Iterable[Case]:
    one, *faster = (parse_rate(rate) for rate in ("1", "2.5", "5", "10"))
    two_levels = ("gloo", "exact", "agoq", "flat")
    layouts = (((2, 1), Case.contenders), ((4, 1), Case.contenders), ((2, 2), two_levels))
    for layout, contenders in layouts:
        for rate in (one, *faster):
            yield Case(*layout, rate, contenders=contenders, against_peers=True)
        if layout == (2, 1):
            ten = faster[-1]
            yield Case(*layout, ten, size=16 * MIB)
            yield Case(*layout, ten, size=256 * MIB)
            yield Case(*layout, one, "reduce_scatter")
            yield Case(*layout, one, "allgather")
            yield Case(*layout, one, dtype="bfloat16")


def _unshaped() -> Iterable[Case]:
    for ranks in (2, 4):
        yield Case(1, ranks, None, transport="shm", against_peers=True)
    yield Case(1, 2, None, transport="tcp")
    for transport in ("tcp", "shm"):
        small = ("gloo", "exact", "core")
        yield Case(1, 2, None, size=4096, contenders=small, transport=transport, calls=200)


TABLE: tuple[Case, ...] = (*_shaped(), *_unshaped())

# Shorter messages, for a look at whether everything works; the ratios mean little.
_QUICK_SIZE = 8 * MIB


def select(
    layouts: Sequence[tuple[int, int]] | None = None,
    rates: Sequence[int | None] | None = None,
    operations: Sequence[str] | None = None,
    sizes: Sequence[int] | None = None,
    quick: bool = False,
) -> list[Case]:
    """Return the table's rows that all given lists name; sizes replace those of the table."""
    chosen = [
        case
        for case in TABLE
        if (layouts is None or (case.hosts, case.ranks_per_host) in layouts)
        and (rates is None or case.rate in rates)
        and (operations is None or case.operation in operations)
    ]
    if quick:
        chosen = [replace(case, size=min(case.size, _QUICK_SIZE)) for case in chosen]
    if sizes is not None:
        chosen = [replace(case, size=size) for case in chosen for size in sizes]
    return list(dict.fromkeys(chosen))
