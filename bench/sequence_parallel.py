"""Time of the collectives of one layer under sequence parallelism, and what hides behind products.

    torchrun --standalone --nproc-per-node 2 bench/sequence_parallel.py
    cd bench && python -m linklab run --hosts 2 --rate 1 -- python sequence_parallel.py

A layer gathers twice and reduce-scatters twice, and its backward pass again: eight collectives of
`--tokens` x `--hidden` elements. Exact and int8 travel over the same transport, their repetitions
alternate, and a ratio is the median over repetitions. Then what stands between two blocks
(reduce-scatter, residual, norm, gather), fused and step by step. Then the backward pass of a
column-parallel layer, with its collectives beside its products and one after the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import agoq_comm
from agoq_comm import sequence_parallel as sp
from agoq_comm.sequence_parallel import exchange

EVERYTHING = ("all_reduce", "reduce_scatter", "all_gather")


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=2048, help="of the whole sequence")
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--json", type=Path, help="where rank 0 writes the results")
    return parser.parse_args()


def collectives_of_a_layer(x: torch.Tensor, group: dist.ProcessGroup) -> None:
    """Both halves of a layer, forward and backward, without what is computed between."""
    x = x.detach().requires_grad_()
    y = x
    for _ in range(2):
        whole = sp.gather_from_sequence_parallel_region(y, group=group)
        y = sp.reduce_scatter_to_sequence_parallel_region(whole, group=group)
    torch.autograd.grad(y, x, y.detach())


def alternate(works: list[Callable[[], None]], repetitions: int) -> list[list[float]]:
    """Seconds of each repetition of each, of the slowest rank; the first one is for warming up."""
    seconds: list[list[float]] = [[] for _ in works]
    for repetition in range(repetitions + 1):
        for work, times in zip(works, seconds, strict=True):
            dist.barrier()
            begin = time.perf_counter()
            work()
            taken = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
            dist.all_reduce(taken, dist.ReduceOp.MAX)
            if repetition > 0:
                times.append(taken.item())
    return seconds


def ratio(slow: list[float], fast: list[float]) -> float:
    """Median over repetitions of how many times faster."""
    return statistics.median(a / b for a, b in zip(slow, fast, strict=True))


def sent(group: dist.ProcessGroup) -> int:
    """Bytes that this rank sent over a group."""
    return sum(counters["wire_bytes"] for counters in agoq_comm.stats(group).values())


def measure_layer(arguments: argparse.Namespace, dtype: torch.dtype) -> dict[str, Any]:
    """Compare exact and int8 collectives of one element type."""
    rows = arguments.tokens // dist.get_world_size()
    x = torch.randn(rows, arguments.hidden, dtype=dtype)
    exact = dist.new_group(pg_options=agoq_comm.Options(quantize=()))
    quantized = dist.new_group(pg_options=agoq_comm.Options(quantize=EVERYTHING))

    def exactly() -> None:
        with sp.use_policy(sp.EXACT):
            collectives_of_a_layer(x, exact)

    seconds = alternate(
        [exactly, lambda: collectives_of_a_layer(x, quantized)], arguments.repetitions
    )
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "exact_seconds": statistics.median(seconds[0]),
        "int8_seconds": statistics.median(seconds[1]),
        "times_faster": ratio(*seconds),
        "bytes_ratio": sent(quantized) / sent(exact),
    }


def _at_once(start: Callable[..., exchange.Pending]) -> Callable[..., exchange.Pending]:
    """Wait where the collective is issued."""

    def begin(*args: Any) -> exchange.Pending:
        result = start(*args).wait()
        return exchange.Pending(None, lambda: result)

    return begin


def measure_overlap(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare the backward pass of a column-parallel layer with one that waits at once."""
    ranks = dist.get_world_size()
    group = dist.new_group(pg_options=agoq_comm.Options(quantize=EVERYTHING))
    torch.manual_seed(0)
    layer = sp.ColumnParallelLinear(nn.Linear(arguments.hidden, arguments.hidden), group)
    x = torch.randn(arguments.tokens // ranks, arguments.hidden, requires_grad=True)
    grad = torch.randn(arguments.tokens, arguments.hidden // ranks)
    outputs = iter([layer(x) for _ in range(2 * (arguments.repetitions + 1))])

    def beside() -> None:
        torch.autograd.grad(next(outputs), [x, layer.weight], grad)

    def one_after_the_other() -> None:
        names = ("start_gather_encoded", "start_gather", "start_reduce_scatter")
        waiting = {name: _at_once(getattr(exchange, name)) for name in names}
        with mock.patch.multiple(exchange, **waiting):
            beside()

    seconds = alternate([one_after_the_other, beside], arguments.repetitions)
    return {
        "one_after_the_other_seconds": statistics.median(seconds[0]),
        "beside_seconds": statistics.median(seconds[1]),
        "times_faster": ratio(*seconds),
    }


def measure_norm(arguments: argparse.Namespace, dtype: torch.dtype) -> dict[str, Any]:
    """Compare what stands between two blocks, fused, with the same step by step."""
    ranks = dist.get_world_size()
    group = dist.new_group(pg_options=agoq_comm.Options(quantize=EVERYTHING))
    term = torch.randn(arguments.tokens, arguments.hidden, dtype=dtype)
    residual = torch.randn(arguments.tokens // ranks, arguments.hidden, dtype=dtype)
    weight = torch.ones(arguments.hidden, dtype=dtype)

    def fused() -> None:
        _, normed = sp.reduce_scatter_norm(term, residual, weight, group=group)
        sp.gather_normed(normed, group)

    def apart() -> None:
        sums = sp.reduce_scatter_to_sequence_parallel_region(term, group) + residual
        normed = F.rms_norm(sums, weight.shape, weight, 1e-5)
        sp.gather_from_sequence_parallel_region(normed, group=group)

    with torch.no_grad():
        seconds = alternate([apart, fused], arguments.repetitions)
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "apart_seconds": statistics.median(seconds[0]),
        "fused_seconds": statistics.median(seconds[1]),
        "times_faster": ratio(*seconds),
    }


def main() -> int:
    """Measure, print, and write what is asked for."""
    arguments = parse_arguments()
    dist.init_process_group("agoq")
    try:
        layers = [measure_layer(arguments, dtype) for dtype in (torch.bfloat16, torch.float32)]
        norms = [measure_norm(arguments, dtype) for dtype in (torch.bfloat16, torch.float32)]
        overlap = measure_overlap(arguments)
        if dist.get_rank() == 0:
            print(f"# {dist.get_world_size()} ranks, {arguments.tokens} x {arguments.hidden}")
            for row in layers:
                print(
                    f"a layer's collectives, {row['dtype']}: exact {row['exact_seconds']:.4f} s, "
                    f"int8 {row['int8_seconds']:.4f} s, {row['times_faster']:.2f} times faster, "
                    f"{row['bytes_ratio']:.4f} of the bytes"
                )
            for row in norms:
                print(
                    f"reduce-scatter, residual, norm, gather, {row['dtype']}: apart "
                    f"{row['apart_seconds']:.4f} s, fused {row['fused_seconds']:.4f} s, "
                    f"{row['times_faster']:.2f} times faster"
                )
            print(
                "backward of a column-parallel layer: one after the other "
                f"{overlap['one_after_the_other_seconds']:.4f} s, beside the products "
                f"{overlap['beside_seconds']:.4f} s, {overlap['times_faster']:.2f} times faster"
            )
            if arguments.json is not None:
                record = {"settings": {k: v for k, v in vars(arguments).items() if k != "json"}}
                record |= {"ranks": dist.get_world_size(), "layers": layers}
                record |= {"norms": norms, "overlap": overlap}
                arguments.json.write_text(json.dumps(record, indent=1) + "\n")
    finally:
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
