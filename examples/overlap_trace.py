"""Trace the backward pass of a column-parallel layer; draw its collectives beside its products.

    torchrun --standalone --nproc-per-node 2 examples/overlap_trace.py --trace trace.json
    torchrun --standalone --nproc-per-node 2 examples/overlap_trace.py --figure overlap.png

`trace.json` is for chrome://tracing and ui.perfetto.dev. The range of a collective lasts from its
issue to its end; the worker's range is when this rank serves it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn

import agoq_comm
from agoq_comm import sequence_parallel as sp

ROWS, WIDTH, HIDDEN = 1024, 1024, 2048
WARM_UP = 3
COLLECTIVES = ("agoq:all_gather", "agoq:reduce_scatter")
# Lanes of the figure, from the top.
LANES = {
    "issue to end": COLLECTIVES,
    "worker thread": tuple(f"{name} (worker)" for name in COLLECTIVES),
    "caller's products": ("aten::mm",),
}


def trace() -> torch.profiler.profile:
    """Profile one backward pass of a layer, after some that are not."""
    layer = sp.ColumnParallelLinear(nn.Linear(WIDTH, HIDDEN, bias=False))
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    for _ in range(WARM_UP):
        y = layer(x)
        y.backward(torch.ones_like(y))
    y = layer(x)
    gradient = torch.ones_like(y)
    dist.barrier()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        y.backward(gradient)
    return profile


def draw(profile: torch.profiler.profile, path: Path) -> None:
    """Draw the ranges of the pass, in milliseconds from its begin."""
    events = [e for e in profile.events() if any(e.name in names for names in LANES.values())]
    begin = min(event.time_range.start for event in events)
    figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
    colours = dict(zip((*COLLECTIVES, "aten::mm"), ("C0", "C1", "C7"), strict=True))
    for lane, names in enumerate(LANES.values()):
        for event in (e for e in events if e.name in names):
            kind = event.name.removesuffix(" (worker)")
            span = (event.time_range.start - begin) / 1e3, event.time_range.elapsed_us() / 1e3
            axes.broken_barh([span], (lane - 0.35, 0.7), color=colours[kind])
    for name, colour in colours.items():
        axes.plot([], [], color=colour, linewidth=6, label=name)
    axes.set(yticks=range(len(LANES)), yticklabels=list(LANES), xlabel="ms")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(colours))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Trace on all ranks; rank 0 writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trace", type=Path, help="where rank 0 writes a Chrome trace")
    parser.add_argument("--figure", type=Path, help="where rank 0 draws it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    everything = ("all_reduce", "reduce_scatter", "all_gather")
    dist.init_process_group("agoq", pg_options=agoq_comm.Options(quantize=everything))
    try:
        profile = trace()
        if dist.get_rank() == 0:
            if arguments.trace:
                profile.export_chrome_trace(str(arguments.trace))
            if arguments.figure:
                draw(profile, arguments.figure)
            for event in sorted(profile.events(), key=lambda e: e.time_range.start):
                if any(event.name in names for names in LANES.values()):
                    begin, lasts = event.time_range.start, event.time_range.elapsed_us()
                    print(f"{begin / 1e3:9.2f} ms {lasts / 1e3:8.2f} ms  {event.name}")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
