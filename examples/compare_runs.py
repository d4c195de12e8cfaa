"""Compare two runs of train_llama.py: a table, and a picture of both loss curves.

Usage::

    python examples/compare_runs.py gloo.json agoq.json --plot curves.png
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from rich.console import Console
from rich.table import Table

Run = dict[str, Any]


def name_of(run: Run) -> str:
    """Return the backend's name."""
    return run["config"]["backend"]


def loss_difference(base: Run, other: Run) -> float:
    """By how much `other`'s validation loss is above `base`'s, relative to it."""
    return other["validation_loss"] / base["validation_loss"] - 1.0


def check_comparable(base: Run, other: Run) -> None:
    """Raise ValueError when the runs differ in more than the backend's name."""
    for key in ("ranks", "device", "parameters", "torch"):
        if base[key] != other[key]:
            raise ValueError(f"the runs differ in {key}: {base[key]} and {other[key]}")
    for key, value in base["config"].items():
        if key != "backend" and other["config"][key] != value:
            raise ValueError(f"the runs differ in {key}: {value} and {other['config'][key]}")


def comparison_table(base: Run, other: Run) -> Table:
    """Lay out what a reader wants to know first."""
    config = base["config"]
    table = Table(
        title=f"LLaMA-style model, {base['parameters'] / 1e6:.1f} M parameters, "
        f"{config['steps']} steps, {base['ranks']} ranks, {base['device']}"
    )
    table.add_column("")
    table.add_column(name_of(base), justify="right")
    table.add_column(name_of(other), justify="right")
    table.add_column(f"{name_of(other)} against {name_of(base)}", justify="right")

    def row(label: str, values: tuple[float, float], form: str, ratio: str) -> None:
        table.add_row(label, *(form.format(value) for value in values), ratio)

    def compare(values: tuple[float, float]) -> str:
        less, more = sorted(values)
        return f"{more / less:.2f} times {'less' if values[1] == less else 'more'}"

    losses = (base["validation_loss"], other["validation_loss"])
    row("validation loss, nats a byte", losses, "{:.4f}", f"{loss_difference(base, other):+.2%}")
    sent = (
        base["communication"]["bytes_sent"] / 2**20,
        other["communication"]["bytes_sent"] / 2**20,
    )
    row("gradients sent a rank, MiB", sent, "{:.0f}", compare(sent))
    seconds = (base["communication"]["seconds"], other["communication"]["seconds"])
    row("time in communication, s", seconds, "{:.2f}", compare(seconds))
    medians = (
        statistics.median(base["step_seconds"]) * 1e3,
        statistics.median(other["step_seconds"]) * 1e3,
    )
    row("median step, ms", medians, "{:.0f}", compare(medians))
    totals = (base["total_seconds"], other["total_seconds"])
    row("whole training, s", totals, "{:.1f}", compare(totals))
    return table


def smooth(values: list[float], width: int = 10) -> list[float]:
    """Average over the last `width` values, or as many as there are."""
    return [
        statistics.fmean(values[max(0, end - width) : end]) for end in range(1, len(values) + 1)
    ]


def draw_losses(base: Run, other: Run, path: Path) -> None:
    """Draw both training curves and validation points, and below how far they are apart."""
    figure, (curves, gap) = plt.subplots(
        2, 1, figsize=(8, 6), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    for run, style, marker in ((base, "-", "o"), (other, "--", "x")):
        losses = smooth(run["training_losses"])
        line = curves.plot(
            range(1, len(losses) + 1), losses, style, label=f"{name_of(run)}, training"
        )
        steps, validation = zip(*run["validation_curve"], strict=True)
        curves.plot(
            steps,
            validation,
            marker,
            color=line[0].get_color(),
            markersize=8,
            label=f"{name_of(run)}, validation",
        )
    curves.set(ylabel="loss, nats a byte")
    curves.grid(alpha=0.3)
    curves.legend()

    pairs = zip(base["validation_curve"], other["validation_curve"], strict=True)
    steps, percents = zip(
        *((mine[0], 100 * (theirs[1] / mine[1] - 1)) for mine, theirs in pairs), strict=True
    )
    gap.axhspan(-0.5, 0.5, color="grey", alpha=0.2, label="±0.5 %")
    gap.plot(steps, percents, "o-")
    gap.set(xlabel="step", ylabel="validation gap, %", ylim=(-1.5, 1.5))
    gap.grid(alpha=0.3)
    gap.legend(loc="upper right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Read two results, print the table, draw the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("base", type=Path)
    parser.add_argument("other", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    base = json.loads(arguments.base.read_text())
    other = json.loads(arguments.other.read_text())
    check_comparable(base, other)
    Console().print(comparison_table(base, other))
    if arguments.plot is not None:
        draw_losses(base, other, arguments.plot)


if __name__ == "__main__":
    main()
