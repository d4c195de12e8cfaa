"""Train every variant of train_parallel_llama.py with several seeds; record it in the docs.

    python examples/parallel_study.py        # rewrites docs/data/parallel_training.json, its figure
                                             # and the table in docs/gradients.md

The exit status is 1 when a variant that is to be as good as exact is not, or a control is as good
as what it is the control of.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import finished_runs
from compare_runs import smooth
from launch import ROOT, torchrun
from three_seeds import replace_table
from train_parallel_llama import configurations, parse_arguments

RANKS = 4
# Largest relative difference of validation losses from the exact run of the same seed, either way.
CRITERION = 0.005
# The baseline, what is judged by the criterion, and what must be worse than it allows.
BASE = "exact"
JUDGED = ("activations", "both", "reduce-scatter-fp4")
CONTROLS = ("narrow-sums", "ring-fp4")
RINGS = ("ring", "ring-fp4")
# What a ring's sums must err more than sums of the same pieces that are encoded once.
TIMES_WORSE = 2
LABELS = {
    "exact": "exact",
    "activations": "activations and their gradients travel in int8",
    "both": "and weight gradients live in int8",
    "narrow-sums": "control: micro-batches added in int8",
    "reduce-scatter-fp4": "reduce-scatter of 32 in fp4",
    "ring-fp4": "control: the same by a ring that encodes at each hop",
    "ring": "a ring of 32 in int8",
}
Run = dict[str, Any]


def train(seeds: list[int], steps: int, folder: Path) -> list[Run]:
    """Make the runs that are not in `folder` yet, and return the results of all."""
    arguments = ["--variants", *LABELS, "--seeds", *map(str, seeds), "--steps", str(steps)]
    torchrun(RANKS, "examples/train_parallel_llama.py", *arguments, "--runs", str(folder))
    wanted = configurations(parse_arguments(arguments))
    found = [finished_runs.read(folder, config.made_with(RANKS)) for config in wanted]
    return [run for run in found if run is not None]


def differences(runs: list[Run]) -> dict[str, dict[int, float]]:
    """By how much each run's validation loss is above that of the exact run of its seed."""
    base = {
        run["config"]["seed"]: run["validation_loss"]
        for run in runs
        if run["config"]["variant"] == BASE
    }
    result: dict[str, dict[int, float]] = {}
    for run in runs:
        variant, seed = run["config"]["variant"], run["config"]["seed"]
        result.setdefault(variant, {})[seed] = run["validation_loss"] / base[seed] - 1
    return result


def bytes_of(run: Run) -> int:
    """Bytes that rank 0 sent to the other rank of its model."""
    return sum(counters["wire_bytes"] for counters in run["sent_between_model_ranks"].values())


def table(runs: list[Run]) -> str:
    """Lay out a record as Markdown."""
    by = {(run["config"]["variant"], run["config"]["seed"]): run for run in runs}
    apart = differences(runs)
    seeds = sorted(apart[BASE])
    heads = " | ".join(f"seed {seed}" for seed in seeds)
    lines = [
        f"| | {heads} | sent between a model's ranks, MiB |",
        "|---|" + "---|" * (len(seeds) + 1),
    ]
    for variant in LABELS:
        cells = []
        for seed in seeds:
            loss = by[variant, seed]["validation_loss"]
            difference = "" if variant == BASE else f" ({apart[variant][seed]:+.2%})"
            cells.append(f"{loss:.4f}{difference}")
        sent = bytes_of(by[variant, min(apart[variant])]) / 2**20
        lines.append(f"| {LABELS[variant]} | {' | '.join(cells)} | {sent:.0f} |")
    return "\n".join(lines)


def draw(runs: list[Run], path: Path) -> None:
    """Draw the training curves of each seed, and how far the mean over seeds is from exact."""
    figure, (curves, gap) = plt.subplots(2, 1, figsize=(8, 7), sharex=True, layout="constrained")
    losses = {
        (run["config"]["variant"], run["config"]["seed"]): smooth(run["training_losses"])
        for run in runs
    }
    for index, variant in enumerate(LABELS):
        ratios = []
        for seed in sorted(seed for name, seed in losses if name == variant):
            mine, base = losses[variant, seed], losses[BASE, seed]
            label = None if ratios else LABELS[variant]
            curves.plot(range(1, len(mine) + 1), mine, color=f"C{index}", alpha=0.7, label=label)
            ratios.append([100 * (a / b - 1) for a, b in zip(mine, base, strict=True)])
        if variant != BASE:
            mean = [statistics.fmean(values) for values in zip(*ratios, strict=True)]
            gap.plot(range(1, len(mean) + 1), mean, color=f"C{index}", label=LABELS[variant])
    curves.set(ylabel="training loss, nats a byte")
    gap.axhspan(-100 * CRITERION, 100 * CRITERION, color="grey", alpha=0.2)
    gap.set(xlabel="step", ylabel="above exact, %")
    for axes in (curves, gap):
        axes.grid(alpha=0.3)
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def verdict(runs: list[Run]) -> bool:
    """Tell whether the judged variants are as good as exact, and each control is worse.

    A ring's errors in int8 are told by the sums themselves; the loss of a small model is not moved.
    Nothing is told by runs that are missing: then it is not so.
    """
    apart = differences(runs)
    if any(apart.get(variant, {}).keys() != apart[BASE].keys() for variant in LABELS):
        return False
    good = all(abs(value) <= CRITERION for v in JUDGED for value in apart[v].values())
    controls_are_worse = all(value > CRITERION for v in CONTROLS for value in apart[v].values())
    sums_are_worse = all(
        run["errors_of_sums"]["ring"] > TIMES_WORSE * min(run["errors_of_sums"].values())
        for run in runs
        if run["config"]["variant"] in RINGS
    )
    return good and controls_are_worse and sums_are_worse


def sums_table(runs: list[Run]) -> str:
    """Lay out the errors of the sums of the rings' steps as Markdown."""
    rows: dict[str, dict[int, float]] = {}
    for format, variant in (("int8", "ring"), ("fp4", "ring-fp4")):
        for run in runs:
            if run["config"]["variant"] == variant:
                for way, error in run["errors_of_sums"].items():
                    rows.setdefault(f"{format}, {way}", {})[run["config"]["seed"]] = error
    seeds = sorted(next(iter(rows.values())))
    lines = [
        f"| relative error of sums | {' | '.join(f'seed {seed}' for seed in seeds)} |",
        "|---|" + "---|" * len(seeds),
    ]
    for name, errors in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{errors[seed]:.4f}' for seed in seeds)} |")
    return "\n".join(lines)


def main() -> int:
    """Run all, write the record, the table and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "build" / "parallel_study", help="what is made already"
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()

    runs = train(arguments.seeds, arguments.steps, arguments.runs)
    record = {"criterion": CRITERION, "runs": runs}
    path = arguments.docs / "data" / "parallel_training.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    draw(runs, arguments.docs / "figures" / "parallel_training.png")
    page = arguments.docs / "gradients.md"
    text = replace_table(page.read_text(), table(runs))
    page.write_text(replace_table(text, sums_table(runs), "sums"))
    print(table(runs), sums_table(runs), sep="\n\n")
    return 0 if verdict(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
