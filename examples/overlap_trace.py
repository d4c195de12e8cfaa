"""Trace the backward pass of a column-parallel layer; draw its collectives beside its products.

    torchrun --standalone --nproc-per-node 2 examples/overlap_trace.py --trace trace.json
    torchrun --standalone --nproc-per-node 2 examples/overlap_trace.py --figure overlap.png
    torchrun --standalone --nproc-per-node 2 examples/overlap_trace.py --device cuda

`trace.json` is for chrome://tracing and ui.perfetto.dev. On the CPU the range of a collective lasts
from its issue to its end; the worker's range is when this rank serves it. On a GPU the ranges are
those of kernels, by the streams that they run on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import ProfilerActivity

import agoq_comm
from agoq_comm import sequence_parallel as sp

ROWS, WIDTH, HIDDEN = 1024, 1024, 2048
WARM_UP = 3
COLLECTIVES = ("agoq:all_gather", "agoq:reduce_scatter")
# Lanes of the figure, from the top.
CPU_LANES = {
    "issue to end": COLLECTIVES,
    "worker thread": tuple(f"{name} (worker)" for name in COLLECTIVES),
    "caller's products": ("aten::mm",),
}
CUDA_LANES = ("group's stream", "NCCL's stream", "caller's stream")


class Range(NamedTuple):
    """What ran, where, and when: in microseconds."""

    begin: float
    lasts: float
    lane: str
    kind: str


def trace(device: str) -> torch.profiler.profile:
    """Profile one backward pass of a layer, after some that are not."""
    layer = sp.ColumnParallelLinear(nn.Linear(WIDTH, HIDDEN, bias=False)).to(device)
    x = torch.randn(ROWS, WIDTH, device=device, requires_grad=True)
    for _ in range(WARM_UP):
        y = layer(x)
        y.backward(torch.ones_like(y))
    y = layer(x)
    gradient = torch.ones_like(y)
    dist.barrier()
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        torch.cuda.synchronize()
        activities.append(ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        y.backward(gradient)
        if device == "cuda":
            torch.cuda.synchronize()
    return profile


def ranges_of_cpu(profile: torch.profiler.profile) -> Iterator[Range]:
    """Ranges of collectives and products."""
    for event in profile.events():
        for lane, names in CPU_LANES.items():
            if event.name in names:
                span = event.time_range
                kind = event.name.removesuffix(" (worker)")
                yield Range(span.start, span.elapsed_us(), lane, kind)


def ranges_of_cuda(profile: torch.profiler.profile) -> Iterator[Range]:
    """Ranges of all that streams did; a stream is told by whose kernels it runs."""
    events = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    by_words = {"group's stream": "agoq::", "NCCL's stream": "nccl"}
    streams = {
        lane: {e.device_resource_id for e in events if words in e.name}
        for lane, words in by_words.items()
    }
    for event in events:
        lanes = (lane for lane, ids in streams.items() if event.device_resource_id in ids)
        span = event.time_range
        lane = next(lanes, "caller's stream")
        yield Range(span.start, span.elapsed_us(), lane, lane.removesuffix("'s stream"))


def draw(ranges: list[Range], lanes: list[str], path: Path) -> None:
    """Draw the ranges of the pass, in milliseconds from its begin."""
    begin = min(one.begin for one in ranges)
    figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
    kinds = sorted({one.kind for one in ranges})
    colours = dict(zip(kinds, ("C0", "C1", "C7"), strict=False))
    for one in ranges:
        span = ((one.begin - begin) / 1e3, one.lasts / 1e3)
        axes.broken_barh([span], (lanes.index(one.lane) - 0.35, 0.7), color=colours[one.kind])
    for name, colour in colours.items():
        axes.plot([], [], color=colour, linewidth=6, label=name)
    axes.set(yticks=range(len(lanes)), yticklabels=lanes, xlabel="ms")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(colours))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Trace on all ranks; rank 0 writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--trace", type=Path, help="where rank 0 writes a Chrome trace")
    parser.add_argument("--figure", type=Path, help="where rank 0 draws it")
    arguments = parser.parse_args()
    on_cuda = arguments.device == "cuda"
    if on_cuda and not torch.cuda.is_available():
        parser.error("--device cuda needs a GPU, and torch sees none")
    torch.set_num_threads(1)
    options = agoq_comm.Options(quantize=("all_reduce", "reduce_scatter", "all_gather"))
    if on_cuda:
        gpu, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        torch.cuda.set_device(gpu % gpus)
        if int(os.environ["LOCAL_WORLD_SIZE"]) > gpus:
            options.device_transport = "host"  # NCCL wants a GPU for each rank.
    dist.init_process_group("agoq", pg_options=options)
    try:
        profile = trace(arguments.device)
        if dist.get_rank() == 0:
            if arguments.trace:
                profile.export_chrome_trace(str(arguments.trace))
            ranges = sorted((ranges_of_cuda if on_cuda else ranges_of_cpu)(profile))
            if not ranges:
                raise RuntimeError("torch's profiler saw no kernels: it has no CUPTI here")
            if arguments.figure:
                draw(ranges, list(CUDA_LANES if on_cuda else CPU_LANES), arguments.figure)
            for one in ranges:
                print(
                    f"{one.begin / 1e3:9.2f} ms {one.lasts / 1e3:8.2f} ms  {one.kind}, {one.lane}"
                )
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
