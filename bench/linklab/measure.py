"""Runs the OSU-style programs in a lab: for times, and for the bytes that leave each host."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from linklab import formulas, network, peers, ranks
from linklab.topology import Lab

_BENCH = Path(__file__).resolve().parents[1]
_ITEMSIZE = 4  # of float32, the programs' default
_TIMEOUT = 900.0
_WARMUP = 2


def _program(operation: str, size: int, *flags: str) -> list[str]:
    return [str(_BENCH / f"osu_{operation}.py"), "-m", f"{size}:{size}", *flags]


def times(
    lab: Lab,
    operation: str,
    size: int,
    contenders: list[str],
    iterations: int,
    mpi: peers.Mpi | None = None,
) -> dict[str, dict[str, Any]]:
    """Compare contenders, call by call, with every result checked; by contender.

    Under `mpi` the ranks are started by its mpirun, and contender "mpi" is that MPI.
    """
    with tempfile.TemporaryDirectory(prefix="linklab") as directory:
        written = Path(directory) / "result.json"
        flags = ["-c", "-i", str(iterations), "-x", str(_WARMUP), "--vs", ",".join(contenders)]
        command = _program(operation, size, *flags, "--json", str(written))
        before = network.sent(lab)
        if mpi is None:
            ranks.run(lab, [sys.executable, *command], _TIMEOUT, echo=False)
        else:
            peers.run(mpi, lab, command, _TIMEOUT)
        calls = iterations + _WARMUP + 1  # one more, whose result is checked
        least = calls * sum(
            formulas.at_least(lab, operation, name, size, _ITEMSIZE) for name in contenders
        )
        if min(payload_since(lab, before)) < least:
            raise network.LabError(
                f"fewer bytes left a host than {', '.join(contenders)} need: some went around the "
                "links, through shared memory"
            )
        return {row["contender"]: row for row in json.loads(written.read_text())["results"]}


@dataclass(frozen=True)
class Egress:
    """Bytes that left each host in one call, beside the formula.

    Attributes
    ----------
    ratio
        Of the host that is furthest from the formula.
    """

    contender: str
    size: int
    bytes_by_host: list[float]
    expected: float
    ratio: float

    TOLERANCE = 0.01

    @property
    def holds(self) -> bool:
        """Whether the formula holds on every host."""
        return abs(self.ratio - 1) <= self.TOLERANCE

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "holds": self.holds}


def egress(lab: Lab, operation: str, contender: str, size: int) -> Egress:
    """Count what leaves the hosts' interfaces in a call.

    A program sends more than its calls: it meets, checks its results, collects times. So it runs
    twice, with few calls and with more, and the difference is that of the calls alone.
    """
    wanted = formulas.expected(lab, operation, contender, size, _ITEMSIZE)
    if wanted is None:
        raise ValueError(f"no formula is known for what {contender!r} sends")
    few, many = 1, 1 + max(2, min(20, 2**26 // size))
    counts = [_sent(lab, operation, contender, size, calls) for calls in (few, many)]
    a_call = [(more - less) / (many - few) for less, more in zip(*counts, strict=True)]
    ratio = max((sent / wanted for sent in a_call), key=lambda r: abs(r - 1))
    return Egress(contender, size, a_call, wanted, ratio)


def _sent(lab: Lab, operation: str, contender: str, size: int, calls: int) -> list[int]:
    before = network.sent(lab)
    flags = ["-i", str(calls), "-x", "0", "--backend", contender]
    command = [sys.executable, *_program(operation, size, *flags)]
    ranks.run(lab, command, _TIMEOUT, echo=False)
    return payload_since(lab, before)


def payload_since(lab: Lab, before: list[tuple[int, int]]) -> list[int]:
    """Return the payload that has left each host since `network.sent` returned `before`."""
    return [
        formulas.payload(new[0] - old[0], new[1] - old[1])
        for old, new in zip(before, network.sent(lab), strict=True)
    ]
