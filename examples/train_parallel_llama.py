"""Train the small LLaMA-style model with tensor, sequence and data parallelism.

    torchrun --standalone --nproc-per-node 4 examples/train_parallel_llama.py --variants exact both

Two ranks share a model, and there are as many replicas as the other ranks make. What travels and
how gradients are kept is the variant's; all else is the same in runs that are compared.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import agoq_comm
import finished_runs
from agoq_comm import sequence_parallel as sp
from agoq_comm.gradients import GradientClipping
from llama_model import Llama, LlamaConfig, next_token_loss
from parallel_llama import ParallelLlama
from parallel_steps import STEPS
from stdlib_corpus import batches, load_corpus, windows
from train_llama import TrainConfig

TENSOR_RANKS = 2

# What travels quantized between the ranks of a model, and how gradients become a step.
VARIANTS = {
    "exact": (sp.EXACT, "exact"),
    "activations": (sp.QuantizationPolicy(), "exact"),
    "both": (sp.QuantizationPolicy(), "encoded"),
    "narrow-sums": (sp.EXACT, "narrow"),
    "ring": (sp.EXACT, "ring"),
    "reduce-scatter-fp4": (sp.EXACT, "reduce-scatter-fp4"),
    "ring-fp4": (sp.EXACT, "ring-fp4"),
}


@dataclass(frozen=True)
class ParallelConfig:
    """What a run does; everything but `variant` and `seed` is the same in runs of a study."""

    variant: str
    seed: int
    steps: int
    micro_batches: int
    batch: int
    length: int
    evaluate_every: int
    validation_rows: int
    learning_rate: float
    width: int = 128
    layers: int = 2
    heads: int = 4
    hidden: int = 344
    clip: float = 1.0
    weight_decay: float = 0.1

    def rate(self, step: int) -> float:
        """As train_llama.py does."""
        schedule = TrainConfig("", self.steps, 0, 0, self.learning_rate, 0, 0, 0)
        return schedule.rate(step)

    def made_with(self, ranks: int) -> dict[str, Any]:
        """All that the result depends on."""
        return asdict(self) | {"ranks": ranks, "way": repr(VARIANTS[self.variant])}


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read `words`, or the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--variants", choices=tuple(VARIANTS), nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--batch", type=int, default=2, help="windows a replica and micro-batch")
    parser.add_argument("--length", type=int, default=64, help="bytes in a window")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--evaluate-every", type=int, default=30)
    parser.add_argument("--validation-rows", type=int, default=256)
    parser.add_argument(
        "--runs", type=Path, help="folder of results, one file a run; what is there is not made"
    )
    return parser.parse_args(words)


def configurations(arguments: argparse.Namespace) -> list[ParallelConfig]:
    """List the runs that are asked for."""
    given = {k: v for k, v in vars(arguments).items() if k not in ("variants", "seeds", "runs")}
    return [
        ParallelConfig(variant=variant, seed=seed, **given)
        for seed, variant in itertools.product(arguments.seeds, arguments.variants)
    ]


@torch.no_grad()
def validation_loss(
    model: torch.nn.Module, rows: torch.Tensor, replicas: dist.ProcessGroup
) -> float:
    """Mean loss over `rows`, shared out among the replicas; activations travel exactly here."""
    total = torch.zeros(2, dtype=torch.float64)
    with sp.use_policy(sp.EXACT):
        for part in rows[replicas.rank() :: replicas.size()].split(32):
            loss = next_token_loss(model, part.long())
            total += torch.tensor([loss.item() * len(part), len(part)], dtype=torch.float64)
    dist.all_reduce(total, group=replicas)
    return (total[0] / total[1]).item()


def micro_batches(
    config: ParallelConfig, rows: torch.Tensor, replicas: dist.ProcessGroup
) -> Iterator[torch.Tensor]:
    """Yield this replica's micro-batches for ever; both ranks of a model get the same."""
    return batches(rows, config.batch, replicas.rank(), replicas.size(), config.seed)


def train(config: ParallelConfig) -> dict[str, Any]:
    """Train and return the result."""
    everything = ("all_reduce", "reduce_scatter", "all_gather")
    mesh = init_device_mesh(
        "cpu",
        (dist.get_world_size() // TENSOR_RANKS, TENSOR_RANKS),
        mesh_dim_names=("replicas", "model"),
        backend_override={
            "model": ("agoq", agoq_comm.Options(quantize=everything, min_numel=1024)),
            "replicas": ("agoq", agoq_comm.Options()),
        },
    )
    replicas, members = mesh.get_group("replicas"), mesh.get_group("model")
    policy, way = VARIANTS[config.variant]
    corpus = load_corpus()
    stream = micro_batches(config, windows(corpus.train, config.length), replicas)
    held_out = windows(corpus.held_out, config.length)
    held_out = held_out[:: max(1, len(held_out) // config.validation_rows)]
    held_out = held_out[: config.validation_rows]

    torch.manual_seed(config.seed)
    shape = LlamaConfig(
        width=config.width, layers=config.layers, heads=config.heads, hidden=config.hidden
    )
    model = ParallelLlama(Llama(shape, config.length), members)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=config.weight_decay
    )
    split = model.split_parameters()
    first = members.rank() == 0
    clipping = GradientClipping(config.clip, members, lambda p: p in split or first)
    stepper = STEPS[way](model, optimizer, replicas, clipping)

    losses: list[float] = []
    curve = [(0, validation_loss(model, held_out, replicas))]
    begin = time.perf_counter()
    agoq_comm.reset_stats(members)
    sp.set_default_policy(policy)
    for step in range(1, config.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = config.rate(step - 1)
        total = 0.0
        for index in range(config.micro_batches):
            rows = next(stream)
            with stepper.micro_batch(last=index == config.micro_batches - 1):
                for part in rows.split(stepper.windows or config.batch):
                    share = len(part) / len(rows) / config.micro_batches
                    loss = next_token_loss(model, part) * share
                    loss.backward()
                    total += loss.item()
        stepper.finish()
        losses.append(total)
        if step % config.evaluate_every == 0 or step == config.steps:
            curve.append((step, validation_loss(model, held_out, replicas)))
    seconds = time.perf_counter() - begin
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean, group=replicas)
    return {
        "config": asdict(config),
        "torch": torch.__version__,
        "ranks": dist.get_world_size(),
        "parameters": sum(p.numel() for p in Llama(shape, config.length).parameters()),
        "validation_loss": curve[-1][1],
        "validation_curve": curve,
        "training_losses": (mean / replicas.size()).tolist(),
        "total_seconds": seconds,
        "errors_of_sums": stepper.errors_of_sums(),
        "sent_between_model_ranks": {
            operation: {key: counters[key] for key in ("calls", "wire_bytes", "exact_bytes")}
            for operation, counters in agoq_comm.stats(members).items()
        },
    }


def main() -> None:
    """Join the group, train, and write the result on rank 0."""
    arguments = parse_arguments()
    torch.set_num_threads(
        max(1, len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    )
    dist.init_process_group("agoq")
    try:
        for config in configurations(arguments):
            made_with = config.made_with(dist.get_world_size())
            if arguments.runs and finished_runs.read(arguments.runs, made_with):
                continue
            result = train(config)
            if dist.get_rank() != 0:
                continue
            print(
                f"  {config.variant}, seed {config.seed}: "
                f"validation loss {result['validation_loss']:.4f} after {config.steps} steps "
                f"in {result['total_seconds']:.1f} s",
                flush=True,
            )
            if arguments.runs:
                finished_runs.write(arguments.runs, made_with, result)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
