"""Draws and tabulates what the model says of clusters larger than anyone has measured here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agoq_comm.plan.cluster import Cluster
from agoq_comm.plan.model import Prediction, choose, predict

__all__ = ["RANKS", "RATES", "Point", "draw", "points", "table"]

RANKS = tuple(2**power for power in range(3, 13))  # 8 to 4096
RATES = (10, 25, 50, 100, 200, 400)  # Gbit/s of a node's port


@dataclass(frozen=True)
class Point:
    """One cluster: the best choice, and the best that is exact."""

    ranks: int
    gigabits: float
    best: Prediction
    exact: Prediction

    @property
    def faster(self) -> float:
        """How many times faster the best choice is."""
        return self.exact.seconds / self.best.seconds


def points(
    base: Cluster,
    count: int,
    itemsize: int,
    ranks: Sequence[int] = RANKS,
    gigabits: Sequence[float] = RATES,
) -> list[Point]:
    """Predict all-reduces of `count` elements on clusters like `base`, of other sizes and rates.

    Exact is the fastest of this library's exact algorithms and a ring: what others would take.
    """
    found = []
    for size in ranks:
        for rate in gigabits:
            link = base.at(rate * 1e9 / 8).between
            cluster = Cluster(size, base.per_node, link, base.within, base.compute)
            best, exact = (
                choose(cluster, count, itemsize=itemsize, quantized=quantized)
                for quantized in (True, False)
            )
            ring = predict(cluster, "ring", count, itemsize=itemsize)
            found.append(Point(size, rate, best, min(exact, ring, key=lambda p: p.seconds)))
    return found


def table(found: Sequence[Point]) -> str:
    """Return Markdown: milliseconds, times faster than exact, algorithm; a line for each size."""
    rates = list(dict.fromkeys(point.gigabits for point in found))
    lines = [
        "| ranks | " + " | ".join(f"{rate:g} Gbit/s" for rate in rates) + " |",
        "|---" * (len(rates) + 1) + "|",
    ]
    for ranks in dict.fromkeys(point.ranks for point in found):
        cells = [
            f"{1e3 * point.best.seconds:.1f} ms, {point.faster:.2f}, {point.best.algorithm}"
            for point in found
            if point.ranks == ranks
        ]
        lines.append(f"| {ranks} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(found: Sequence[Point], title: str, path: Path) -> None:
    """Write a picture: times faster than exact, one line a rate. Needs Matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharex=True)
    for rate in dict.fromkeys(point.gigabits for point in found):
        own = [point for point in found if point.gigabits == rate]
        ranks = [point.ranks for point in own]
        label = f"{rate:g} Gbit/s"
        axes[0].plot(ranks, [point.faster for point in own], "o-", label=label)
        axes[1].plot(ranks, [1e3 * point.best.seconds for point in own], "o-", label=label)
    axes[0].axhline(1, color="grey", linewidth=0.8)
    axes[0].set_ylabel("times faster than the best exact algorithm")
    axes[1].set_ylabel("milliseconds")
    axes[1].set_yscale("log")
    for axis in axes:
        axis.set_xscale("log", base=2)
        sizes = list(dict.fromkeys(point.ranks for point in found))
        axis.set_xticks(sizes, [str(size) for size in sizes], fontsize="small")
        axis.set_xlabel("ranks")
    axes[0].legend(fontsize="small")
    figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
