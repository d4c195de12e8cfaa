"""The results as a picture: times faster than gloo and than the exact path, by rate of the link."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from linklab.cases import MIB
from linklab.topology import layout_name

_SERIES = (("agoq/gloo", "agoq, than gloo"), ("agoq/exact", "agoq, than exact"))


def draw(results: dict[str, Any], path: Path) -> None:
    """Write a PNG of all-reduces of fp32 over shaped links."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [
        row
        for row in results["rows"]
        if row["launcher"] == "direct"
        and row["rate"] is not None
        and (row["operation"], row["dtype"], row["size"]) == ("allreduce", "float32", 64 * MIB)
    ]
    layouts = list(dict.fromkeys((row["hosts"], row["ranks_per_host"]) for row in rows))
    if not layouts:
        return
    figure, axes = pyplot.subplots(
        1, len(layouts), figsize=(4.2 * len(layouts), 3.6), sharey=True, squeeze=False
    )
    for axis, layout in zip(axes[0], layouts, strict=True):
        own = sorted(
            (row for row in rows if (row["hosts"], row["ranks_per_host"]) == layout),
            key=lambda row: row["rate"],
        )
        rates = [row["rate"] / 1e9 for row in own]
        for ratio, label in (*_SERIES, ("agoq/flat", "agoq, than flat agoq")):
            if all(ratio in row["faster"] for row in own):
                axis.plot(rates, [row["faster"][ratio] for row in own], "o-", label=label)
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axis.minorticks_off()
        axis.set_title(layout_name(*layout))
        axis.set_xlabel("Gbit/s of each host's link")
        axis.legend(fontsize="small")
    axes[0][0].set_ylabel("times faster")
    axes[0][0].set_ylim(bottom=0)
    figure.suptitle("All-reduce of 64 MiB fp32")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
