"""Measure what sums of encoded gradients lose, beside what other designs would lose.

    python examples/gradient_errors.py       # rewrites docs/data/gradient_errors.json, its figure
                                             # and the table in docs/gradients.md

Gradients are those of the small LLaMA-style model, one for each micro-batch. They are summed once
as the micro-batches of one rank, and once as the pieces of as many ranks. Errors are relative, in
the L2 norm, against a sum in fp64.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import agoq_comm
from agoq_comm import StochasticRounding
from launch import ROOT
from llama_model import Llama, LlamaConfig, next_token_loss
from parallel_steps import all_reduce_sum, reduce_scatter_sum, ring_all_reduce
from stdlib_corpus import batches, load_corpus, windows
from three_seeds import replace_table

LENGTH = 64
Sum = Callable[[list[torch.Tensor]], torch.Tensor]


def gradients(count: int) -> list[torch.Tensor]:
    """Return gradients of all weights, flat, of `count` micro-batches, after some training."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig(width=128, layers=2, heads=4, hidden=344), LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream = batches(windows(load_corpus().train, LENGTH), 4, 0, 1, 0)
    for _ in range(50):
        next_token_loss(model, next(stream)).backward()
        optimizer.step()
        optimizer.zero_grad()
    result = []
    for _ in range(count):
        loss = next_token_loss(model, next(stream))
        flat = torch.autograd.grad(loss, list(model.parameters()))
        result.append(torch.cat([g.flatten() for g in flat]))
    return result


# --- micro-batches of one rank ----------------------------------------------------------------


def add_in_fp32(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Decode, add, encode: what `QuantizedGradients` does."""
    total = agoq_comm.encode(pieces[0])
    for piece in pieces[1:]:
        total = agoq_comm.sum_encode([total, piece])
    return agoq_comm.decode(total)


def add_stochastically(pieces: list[torch.Tensor]) -> torch.Tensor:
    """The same with stochastic rounding."""
    total = agoq_comm.encode(pieces[0], rounding=StochasticRounding(1))
    for call, piece in enumerate(pieces[1:], 1):
        total = agoq_comm.sum_encode([total, piece], rounding=StochasticRounding(1, call=call))
    return agoq_comm.decode(total)


def add_with_feedback(pieces: list[torch.Tensor]) -> torch.Tensor:
    """The same, with what an encoding lost added to the next gradient."""
    lost = torch.zeros_like(pieces[0])
    total = torch.zeros_like(pieces[0])
    for piece in pieces:
        exact = total + lost + piece
        total = agoq_comm.decode(agoq_comm.encode(exact))
        lost = agoq_comm.decode(agoq_comm.encode(exact - total))
    return total


def add_in_int8(pieces: list[torch.Tensor]) -> torch.Tensor:
    """Control: codes are added and saturate, in the first micro-batch's scales."""
    first = agoq_comm.encode(pieces[0])
    steps = first.scales.float().repeat_interleave(first.block)[: first.numel()]
    codes = first.codes.float()
    for piece in pieces[1:]:
        addend = torch.where(steps > 0, piece / steps, 0).round()
        codes = (codes + addend).clamp(-127, 127)
    return codes * steps


ACCUMULATION: dict[str, Sum] = {
    "fp32 (QuantizedGradients)": add_in_fp32,
    "fp32, stochastic rounding": add_stochastically,
    "fp32, error feedback": add_with_feedback,
    "control: int8": add_in_int8,
}
REDUCTION: dict[str, Sum] = {
    "all-reduce": all_reduce_sum,
    "reduce-scatter": reduce_scatter_sum,
    "control: ring, encoded at each hop": ring_all_reduce,
}


def errors(ways: dict[str, Sum], pieces: list[torch.Tensor]) -> dict[str, dict[int, float]]:
    """Relative error of each way for 1, 2, 4, ... pieces."""
    result: dict[str, dict[int, float]] = {name: {} for name in ways}
    count = 1
    while count <= len(pieces):
        exact = torch.stack(pieces[:count]).double().sum(0)
        for name, way in ways.items():
            difference = way(pieces[:count]).double() - exact
            result[name][count] = float(difference.norm() / exact.norm())
        count *= 2
    return result


def table(record: dict[str, dict[str, dict[int, float]]]) -> str:
    """Lay out a record as Markdown."""
    counts = list(next(iter(record["ranks"].values())))
    lines = [
        f"| relative error | {' | '.join(map(str, counts))} |",
        "|---|" + "---|" * len(counts),
    ]
    for title, curves in record.items():
        lines.append(f"| **{title}** |" + " |" * len(counts))
        for name, curve in curves.items():
            lines.append(f"| {name} | {' | '.join(f'{curve[n]:.4f}' for n in counts)} |")
    return "\n".join(lines)


def draw(record: dict[str, dict[str, dict[int, float]]], path: Path) -> None:
    """Draw both families of curves."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axes, (title, curves) in zip(panels, record.items(), strict=True):
        for name, curve in curves.items():
            style = "--" if name.startswith("control") else "-"
            axes.plot(list(curve), list(curve.values()), style, marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel=title)
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend()
    panels[0].set(ylabel="relative error of the sum")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Measure, record, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most", type=int, default=64, help="pieces of the largest sum")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()
    pieces = gradients(arguments.most)
    record = {
        "micro-batches of one rank": errors(ACCUMULATION, pieces),
        "ranks": errors(REDUCTION, pieces),
    }
    path = arguments.docs / "data" / "gradient_errors.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    draw(record, arguments.docs / "figures" / "gradient_errors.png")
    page = arguments.docs / "gradients.md"
    page.write_text(replace_table(page.read_text(), table(record), "errors"))
    print(table(record))


if __name__ == "__main__":
    main()
