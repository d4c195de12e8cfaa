"""Train with activations in 4 bits and with several seeds; record it in the documentation.

    python examples/activation_study.py      # rewrites docs/data/activation_training.json, its
                                             # figure and the table in docs/activation_training.md

The exit status is 1 when what is to be as good as exact is not.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import finished_runs
from agoq_comm.activation import Policy, compress, wrap_
from agoq_comm.activation.report_measure import measure
from compare_runs import smooth
from launch import ROOT
from llama_model import Llama, LlamaConfig, next_token_loss
from stdlib_corpus import batches, load_corpus, windows
from three_seeds import replace_table
from train_llama import TrainConfig

# Largest relative difference of validation losses from the exact run of the same seed, either way.
CRITERION = 0.005
BASE, JUDGED = "exact", "agoq"
LABELS = {
    "exact": "exact",
    "agoq": "attention exact, norms e2m3, all else fp4",
    "paper": "the paper's: attention exact, all else fp4",
    "uniform": "control: attention in fp4 too",
}
# The policies of the variants that `wrap_` makes.
WRAPPED = {"agoq": Policy.agoq(), "paper": Policy.agoq(norm="fp4/128")}
_CAPTION = "Training curves, and validation losses against exact"
FORMATS = ("fp4", "e2m3", "int8")
CPU = torch.device("cpu")
Run = dict[str, Any]
Context = Callable[[], contextlib.AbstractContextManager[Any]]


_corpus = functools.cache(load_corpus)


def prepare(variant: str, model: Llama) -> Context:
    """Make the model a variant; return the context that its forward passes run in."""
    if variant in WRAPPED:
        wrap_(model, WRAPPED[variant])
    elif variant == "uniform":
        compression = compress(model, Policy.uniform())
        return lambda: compression
    return contextlib.nullcontext


@torch.no_grad()
def validation_loss(model: Llama, rows: torch.Tensor) -> float:
    """Mean loss over `rows`."""
    parts = rows.split(16)
    losses = [next_token_loss(model, part.long()).item() * part.shape[0] for part in parts]
    return sum(losses) / rows.shape[0]


def train(variant: str, config: TrainConfig) -> Run:
    """Make one run."""
    corpus = _corpus()
    stream = batches(windows(corpus.train, config.length), config.batch, 0, 1, config.seed)
    held_out = windows(corpus.held_out, config.length)
    held_out = held_out[:: max(1, held_out.shape[0] // config.validation_rows)]
    held_out = held_out[: config.validation_rows]
    torch.manual_seed(config.seed)
    model = Llama(LlamaConfig(), config.length)
    context = prepare(variant, model)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=config.weight_decay
    )

    def forward(rows: torch.Tensor) -> torch.Tensor:
        with context():
            return next_token_loss(model, rows)

    first = next(stream)
    forward(first)  # What libraries hold on to from their first call is no activation.
    held = measure(lambda: forward(first), CPU).held
    curve, losses, seconds = [(0, validation_loss(model, held_out))], [], []
    for step in range(1, config.steps + 1):
        rows, begin = next(stream), time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = config.rate(step - 1)
        loss = forward(rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        if step % config.evaluate_every == 0 or step == config.steps:
            curve.append((step, validation_loss(model, held_out)))
    unit = 4 * config.batch * config.length * LlamaConfig().width
    return {
        "variant": variant,
        "seed": config.seed,
        "validation_loss": curve[-1][1],
        "validation_curve": curve,
        "training_losses": losses,
        "held_bytes": held,
        # Numbers of batch * length * width, for one of the layers.
        "held_units": held / (unit * LlamaConfig().layers),
        "median_step_seconds": statistics.median(seconds),
    }


def made(variant: str, config: TrainConfig, folder: Path) -> Run:
    """Make a run, or read it where an earlier study made it."""
    policy = repr(WRAPPED.get(variant))
    shape = asdict(LlamaConfig())
    made_with = asdict(config) | {"variant": variant, "policy": policy, "model": shape}
    run = finished_runs.read(folder, made_with)
    if run is None:
        torch.set_num_threads(1)
        run = train(variant, config)
        loss = run["validation_loss"]
        print(f"{variant}, seed {config.seed}: validation loss {loss:.4f}", flush=True)
        finished_runs.write(folder, made_with, run)
    return run


def gradient_errors(config: TrainConfig) -> dict[str, float]:
    """Error of the whole gradient by format, relative to its norm, before training."""
    corpus = _corpus()
    rows = next(batches(windows(corpus.train, config.length), config.batch, 0, 1, config.seed))

    def gradient(format: str | None) -> torch.Tensor:
        torch.manual_seed(config.seed)
        model = Llama(LlamaConfig(), config.length)
        if format is not None:
            wrap_(model, Policy.agoq(format))
        next_token_loss(model, rows).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradient(None)
    return {f: ((gradient(f) - exact).norm() / exact.norm()).item() for f in FORMATS}


def difference(run: Run, runs: list[Run]) -> float:
    """By how much its validation loss is above that of the exact run of its seed."""
    base = next(r for r in runs if r["variant"] == BASE and r["seed"] == run["seed"])
    return run["validation_loss"] / base["validation_loss"] - 1


def table(runs: list[Run], errors: dict[str, float]) -> str:
    """Lay out the record as Markdown."""
    seeds = sorted({run["seed"] for run in runs})
    lines = [
        "| activations | held, MiB | held, numbers of B·S·H a layer | "
        + " | ".join(f"seed {seed}" for seed in seeds)
        + " |",
        "|---|---|---|" + "---|" * len(seeds),
    ]
    for variant, label in LABELS.items():
        own = [run for run in runs if run["variant"] == variant]
        cells = [
            f"{run['validation_loss']:.4f}"
            + ("" if variant == BASE else f" ({difference(run, runs):+.2%})")
            for run in own
        ]
        held = f"{own[0]['held_bytes'] / 2**20:.1f} | {own[0]['held_units']:.2f}"
        lines.append(f"| {label} | {held} | {' | '.join(cells)} |")
    told = ", ".join(f"{format} {error:.3f}" for format, error in errors.items())
    lines += ["", f"Error of the gradient relative to its norm, wrapped: {told}."]
    return "\n".join([*lines, "", f"![{_CAPTION}](figures/activation_training.png)"])


def draw(runs: list[Run], path: Path) -> None:
    """Draw the training curves of the first seed, and how far validation losses are apart."""
    figure, (curves, gap) = plt.subplots(
        2, 1, figsize=(8, 6), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    seed = min(run["seed"] for run in runs)
    colors = dict(zip(LABELS, ("black", "tab:blue", "tab:green", "tab:red"), strict=True))
    for run in runs:
        color = colors[run["variant"]]
        if run["seed"] == seed:
            losses = smooth(run["training_losses"])
            label = LABELS[run["variant"]]
            curves.plot(range(1, len(losses) + 1), losses, color=color, lw=1, label=label)
        if run["variant"] != BASE:
            base = next(r for r in runs if (r["variant"], r["seed"]) == (BASE, run["seed"]))
            pairs = zip(run["validation_curve"], base["validation_curve"], strict=True)
            steps, percents = zip(*((a[0], 100 * (a[1] / b[1] - 1)) for a, b in pairs), strict=True)
            gap.plot(steps, percents, "o-", color=color, lw=1, markersize=3)
    curves.set(ylabel="training loss, nats a byte")
    curves.grid(alpha=0.3)
    curves.legend(fontsize="small")
    gap.axhspan(-100 * CRITERION, 100 * CRITERION, color="grey", alpha=0.2)
    gap.set(xlabel="step", ylabel="validation loss against exact, %")
    gap.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> int:
    """Run all; write the record, the figure and the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=12, help="as two ranks of train_llama.py")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--runs",
        type=Path,
        default=ROOT / "build" / "activation_study",
        help="what is made already",
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()

    config = TrainConfig("none", arguments.steps, arguments.batch, 128, 1e-3, 0, 50, 128)
    wanted = [
        (variant, replace(config, seed=seed), arguments.runs)
        for variant in LABELS
        for seed in arguments.seeds
    ]
    with get_context("spawn").Pool(arguments.jobs) as pool:
        runs = pool.starmap(made, wanted, chunksize=1)
    errors = gradient_errors(config)
    settings = {k: v for k, v in asdict(config).items() if k not in ("backend", "seed")}
    record = {
        "torch": torch.__version__,
        "criterion": CRITERION,
        "config": settings,
        "gradient_errors": errors,
        "runs": [{k: v for k, v in run.items() if k != "training_losses"} for run in runs],
    }
    path = arguments.docs / "data" / "activation_training.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    draw(runs, arguments.docs / "figures" / "activation_training.png")
    page = arguments.docs / "activation_training.md"
    page.write_text(replace_table(page.read_text(), table(runs, errors), "activations"))
    print(table(runs, errors))
    worst = max(abs(difference(run, runs)) for run in runs if run["variant"] == JUDGED)
    print(f"largest difference {worst:.2%}, criterion {CRITERION:.1%}")
    return 0 if worst <= CRITERION else 1


if __name__ == "__main__":
    sys.exit(main())
