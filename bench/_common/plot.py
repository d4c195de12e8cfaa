"""Draws size against time and against the base's time, from a report's dictionary or file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def _size_label(size: float, _position: int | None = None) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} GiB"


def draw(report: dict[str, Any], path: Path) -> None:
    """Draw the times of each contender, and the speed relative to the first one."""
    series: dict[str, list[dict[str, Any]]] = {}
    for result in report["results"]:
        series.setdefault(result["contender"], []).append(result)
    base = next(iter(series))
    sizes = [result["size"] for result in series[base]]

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    times, ratios = axes
    for name, results in series.items():
        milliseconds = [result["median_us"] / 1e3 for result in results]
        (line,) = times.plot(sizes, milliseconds, marker="o", label=name)
        if name != base:
            relative = [result["ratio"] for result in results]
            ratios.plot(sizes, relative, marker="o", label=name, color=line.get_color())
    times.set(ylabel="median time, ms", yscale="log")
    ratios.axhline(1.0, color="grey", linewidth=1, label=base)
    ratios.set(ylabel=f"times faster than {base}")
    ratios.set_ylim(0, 1.1 * max(1.0, *(result["ratio"] for result in report["results"])))
    for axis in axes:
        if sizes != [0]:  # A barrier has no size.
            axis.set_xscale("log", base=2)
        axis.set_xticks(sizes[::2])
        axis.xaxis.set_major_formatter(_size_label)
        axis.tick_params(axis="x", labelrotation=30)
        axis.set_xlabel("message size")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.suptitle(
        f"{report['benchmark']} {report['test']}, {report['dtype']}, {report['ranks']} ranks, "
        f"{report['device']}"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Draw a report that was written with ``--json``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    arguments = parser.parse_args()
    draw(json.loads(arguments.report.read_text()), arguments.picture)


if __name__ == "__main__":
    main()
