"""Train every variant of train_parallel_llama.py with several seeds; record it in the docs.

    python examples/parallel_study.py        # rewrites docs/data/parallel_training.json, its figure
                                             # and the table in docs/gradients.md

The exit status is 1 when a variant that is to be as good as exact is not, or a control is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from compare_runs import smooth
from launch import ROOT, torchrun
from three_seeds import replace_table

RANKS = 4
# Largest relative difference of validation losses from the exact run of the same seed, either way.
CRITERION = 0.005
# The baseline, what is judged by the criterion, and what must be worse than it allows.
BASE = "exact"
JUDGED = ("activations", "both")
CONTROLS = ("narrow-sums",)
LABELS = {
    "exact": "exact",
    "activations": "activations and their gradients travel in int8",
    "both": "and weight gradients live in int8",
    "narrow-sums": "control: micro-batches added in int8",
}
Run = dict[str, Any]


def train(variant: str, seed: int, steps: int) -> Run:
    """Make one run and return its result."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.json"
        arguments = ["--variant", variant, "--seed", str(seed), "--steps", str(steps)]
        torchrun(RANKS, "examples/train_parallel_llama.py", *arguments, "--json", str(path))
        return json.loads(path.read_text())


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
    for variant in (BASE, *JUDGED, *CONTROLS):
        cells = []
        for seed in seeds:
            if (variant, seed) not in by:
                cells.append("")
                continue
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
    for index, variant in enumerate((BASE, *JUDGED, *CONTROLS)):
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
    """Tell whether the judged variants are as good as exact, and the controls are not."""
    apart = differences(runs)
    good = all(abs(value) <= CRITERION for v in JUDGED for value in apart[v].values())
    return good and all(value > CRITERION for v in CONTROLS for value in apart[v].values())


def main() -> int:
    """Run all, write the record, the table and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()

    runs = []
    for seed in arguments.seeds:
        # One seed of a control is enough to see that it is worse.
        controls = CONTROLS if seed == arguments.seeds[0] else ()
        for variant in (BASE, *JUDGED, *controls):
            runs.append(train(variant, seed, arguments.steps))
    record = {"criterion": CRITERION, "runs": runs}
    path = arguments.docs / "data" / "parallel_training.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    draw(runs, arguments.docs / "figures" / "parallel_training.png")
    page = arguments.docs / "gradients.md"
    page.write_text(replace_table(page.read_text(), table(runs)))
    print(table(runs))
    return 0 if verdict(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
