"""Results of a run: OSU's text for one backend, a comparison for several, JSON for both."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from _common.command_line import Settings
from _common.workload import COLLECTIVE, Kind

# Widths of OMB's output, so that what reads theirs reads ours.
_SIZE_WIDTH, _FIELD_WIDTH = 10, 18


@dataclass(frozen=True)
class Result:
    """One contender at one size.

    Attributes
    ----------
    average_us, minimum_us, maximum_us
        Over the ranks, of each rank's mean time a call: what OSU prints.
    median_us
        Over the calls, of the slowest rank's time.
    ratio
        Median over the rounds of the base's time over this one's, slowest ranks each.
    bus_bandwidth
        Bytes a second that a link carries if the algorithm is bandwidth-optimal and exact, so that
        it compares with the hardware, and for a quantized call exceeds it.
    wire_bytes, wire_bytes_source
        Bytes a rank sent in one call, and how that is known; None where nobody knows.
    relative_error
        L2 norm of the difference from the fp64 result over the norm of that.
    valid
        Whether the error is within what the backend promises; None unless asked.
    """

    contender: str
    size: int
    calls: int
    average_us: float
    minimum_us: float
    maximum_us: float
    median_us: float
    ratio: float
    bus_bandwidth: float
    wire_bytes: int | None
    wire_bytes_source: str | None
    relative_error: float | None
    valid: bool | None


def summarize(seconds: torch.Tensor, base: torch.Tensor) -> dict[str, float]:
    """Reduce seconds, ranks x calls, of a contender and of the base to times of a result."""
    rank_means = seconds.mean(dim=1) * 1e6
    slowest = seconds.amax(dim=0)
    return {
        "average_us": rank_means.mean().item(),
        "minimum_us": rank_means.min().item(),
        "maximum_us": rank_means.max().item(),
        "median_us": slowest.median().item() * 1e6,
        "ratio": (base.amax(dim=0) / slowest).median().item(),
    }


class Report:
    """Prints rows as they come, on rank 0, and remembers them for JSON and plots."""

    def __init__(self, title: str, settings: Settings, kind: Kind = COLLECTIVE) -> None:
        self.title = title
        self.settings = settings
        self.kind = kind
        self.results: list[Result] = []
        self._prints = dist.get_rank() == 0
        self._compares = len(settings.contenders) > 1
        self._print_header()

    def _print(self, text: str) -> None:
        if self._prints:
            print(text, flush=True)

    def _print_header(self) -> None:
        settings = self.settings
        self._print(f"\n# OSU-style agoq_comm {self.title} {self.kind.test}")
        if self.kind.sized:
            self._print(f"# Datatype: {str(settings.dtype).removeprefix('torch.')}.")
        if self._compares:
            self._print(
                f"# {dist.get_world_size()} ranks; median times of the slowest rank; "
                f"ratio: how many times faster than {settings.contenders[0]}"
            )
            columns = ["Backend", "Latency(us)", "Ratio", "BusBW(MB/s)", "Sent/rank(B)"]
            columns.append("Rel. error")
        elif settings.full and not self.kind.bandwidth:
            columns = [self.kind.column, "Min Latency(us)", "Max Latency(us)", "Iterations"]
        else:
            columns = [self.kind.column]
        if settings.validate:
            columns.append("Validation")
        self._print(self._row("# Size" if self.kind.sized else "#", columns))

    def _row(self, first: str, fields: list[str]) -> str:
        return first.ljust(_SIZE_WIDTH) + "".join(field.rjust(self._width) for field in fields)

    @property
    def _width(self) -> int:
        return 14 if self._compares else _FIELD_WIDTH

    def add(self, results: list[Result]) -> None:
        """Take the results of one size, in the order of the contenders."""
        self.results.extend(results)
        for result in results:
            fields = self._comparison(result) if self._compares else self._osu(result)
            if result.valid is not None:
                fields.append("Pass" if result.valid else "Fail")
            self._print(self._row(str(result.size) if self.kind.sized else "", fields))

    def _osu(self, result: Result) -> list[str]:
        if self.kind.bandwidth:
            return [f"{result.size / result.average_us:.2f}"]
        fields = [f"{result.average_us:.2f}"]
        if self.settings.full:
            fields += [f"{result.minimum_us:.2f}", f"{result.maximum_us:.2f}", str(result.calls)]
        return fields

    def _comparison(self, result: Result) -> list[str]:
        return [
            result.contender,
            f"{result.median_us:.1f}",
            f"{result.ratio:.2f}",
            f"{result.bus_bandwidth / 1e6:.0f}",
            "-" if result.wire_bytes is None else str(result.wire_bytes),
            "-" if result.relative_error is None else f"{result.relative_error:.2e}",
        ]

    def finish(self) -> bool:
        """Say what the byte counts are, write the files; return whether all checks passed."""
        if self._compares:
            sources = {r.contender: r.wire_bytes_source for r in self.results}
            for name, source in sources.items():
                if source is not None:
                    self._print(f"# Sent/rank of {name}: {source}")
        if self._prints and self.settings.json is not None:
            write_json(self.settings.json, self.as_dict())
        if self._prints and self.settings.plot is not None:
            # Only who wants a picture needs Matplotlib.
            from _common.plot import draw

            draw(self.as_dict(), self.settings.plot)
        return all(result.valid is not False for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        """Everything, with what is needed to read it."""
        return {
            "benchmark": self.title,
            "test": self.kind.test,
            "ranks": dist.get_world_size(),
            "dtype": str(self.settings.dtype).removeprefix("torch."),
            "device": self.settings.device,
            "buffers": self.settings.library,
            "torch": torch.__version__,
            "machine": platform.machine(),
            "results": [asdict(result) for result in self.results],
        }


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write `value`, making the directory if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")
