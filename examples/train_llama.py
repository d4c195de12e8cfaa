"""Train a small LLaMA-style model, byte by byte, on the Python standard library.

    torchrun --standalone --nproc-per-node 2 examples/train_llama.py --backend agoq

An ordinary DDP script: nothing in it but the backend's name says how gradients travel. It runs on
CPUs, on GPUs when there is one for each rank, and on several machines as torchrun scripts do.
docs/training.md says what each number of the result means.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import agoq_comm
from comm_meter import CommMeter
from llama_model import Llama, LlamaConfig, next_token_loss
from stdlib_corpus import batches, load_corpus, windows


@dataclass(frozen=True)
class TrainConfig:
    """What a run does; everything but `backend` is the same in two runs that are compared."""

    backend: str
    steps: int
    batch: int
    length: int
    learning_rate: float
    seed: int
    evaluate_every: int
    validation_rows: int
    warmup_steps: int = 20
    weight_decay: float = 0.1
    clip: float = 1.0

    def rate(self, step: int) -> float:
        """Linear warm-up, then a cosine down to a tenth."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.learning_rate * (0.55 + 0.45 * math.cos(math.pi * progress))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backend", required=True, help="gloo, nccl, agoq, ...")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=6, help="windows of text a rank and step")
    parser.add_argument("--length", type=int, default=128, help="bytes in a window")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--evaluate-every", type=int, default=50)
    parser.add_argument("--validation-rows", type=int, default=128)
    parser.add_argument("--json", type=Path, help="where rank 0 writes the result")
    return parser.parse_args()


def choose_device(wanted: str) -> torch.device:
    """Pick this rank's device; auto takes GPUs when there is one for each rank of this machine."""
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.device_count() >= local_ranks else "cpu"
    if wanted == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    # Ranks share the cores; more threads than cores make every rank slow, and unevenly so.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // local_ranks))
    return torch.device("cpu")


@torch.no_grad()
def validation_loss(model: torch.nn.Module, rows: torch.Tensor, device: torch.device) -> float:
    """Mean loss over `rows`, shared out among the ranks; fp64 sums always travel exactly."""
    model.eval()
    total = torch.zeros(2, dtype=torch.float64, device=device)
    for part in rows[dist.get_rank() :: dist.get_world_size()].split(16):
        loss = next_token_loss(model, part.long().to(device))
        total += torch.tensor([loss.item() * part.shape[0], part.shape[0]]).to(total)
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


@contextlib.contextmanager
def progress(steps: int) -> Iterator[Callable[[int, float], None]]:
    """Yield what reports (step, loss): a bar on a terminal, a line now and then in a log."""
    if dist.get_rank() != 0:
        yield lambda step, loss: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console()
    if not console.is_terminal:
        every = max(1, steps // 8)
        yield (
            lambda step, loss: (
                print(f"  step {step:4d}/{steps}  training loss {loss:.4f}", flush=True)
                if step % every == 0
                else None
            )
        )
        return
    columns = (
        TextColumn("  training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=steps, loss=float("nan"))
        yield lambda step, loss: bar.update(task, completed=step, loss=loss)


def bytes_sent(backend: str, elements: int) -> tuple[int, str]:
    """Bytes this rank sent in gradient all-reduces, and how that is known."""
    if backend == "agoq":
        return agoq_comm.stats()["all_reduce"]["wire_bytes"], "counted by agoq_comm.stats"
    ranks = dist.get_world_size()
    return 2 * (ranks - 1) * elements * 4 // ranks, "ring formula 2(p-1)/p * elements * 4"


def train(config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """Train and return the result; see docs/training.md for its fields."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    corpus = load_corpus()
    stream = batches(windows(corpus.train, config.length), config.batch, rank, ranks, config.seed)
    held_out = windows(corpus.held_out, config.length)
    # Evenly spread over the held-out files, and the same in every run.
    held_out = held_out[:: max(1, held_out.shape[0] // config.validation_rows)]
    held_out = held_out[: config.validation_rows]

    torch.manual_seed(config.seed)
    bare = Llama(LlamaConfig(), config.length).to(device)
    parameters = sum(p.numel() for p in bare.parameters())
    model = DistributedDataParallel(bare, gradient_as_bucket_view=True)
    meter = CommMeter(device)
    model.register_comm_hook(dist.group.WORLD, meter.hook)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=config.weight_decay
    )

    losses: list[torch.Tensor] = []
    step_seconds: list[float] = []
    curve = [(0, validation_loss(bare, held_out, device))]
    begin = time.perf_counter()
    with progress(config.steps) as report:
        for step in range(1, config.steps + 1):
            step_begin = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = config.rate(step - 1)
            loss = next_token_loss(model, next(stream).to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            report(step, loss.item())
            step_seconds.append(time.perf_counter() - step_begin)
            if step % config.evaluate_every == 0 or step == config.steps:
                curve.append((step, validation_loss(bare, held_out, device)))
    total_seconds = time.perf_counter() - begin

    communication = meter.summary()
    tokens = config.steps * config.batch * config.length * ranks
    sent, source = bytes_sent(config.backend, communication.elements)
    mean_losses = torch.stack(losses).double()
    dist.all_reduce(mean_losses)
    return {
        "config": asdict(config),
        "torch": torch.__version__,
        "device": device.type,
        "ranks": ranks,
        "parameters": parameters,
        "validation_loss": curve[-1][1],
        "validation_curve": curve,
        "training_losses": (mean_losses / ranks).tolist(),
        "step_seconds": step_seconds,
        "total_seconds": total_seconds,
        "tokens_per_second": tokens / sum(step_seconds),
        "communication": asdict(communication) | {"bytes_sent": sent, "bytes_source": source},
    }


def main() -> None:
    """Join the group, train, and write the result on rank 0."""
    arguments = parse_arguments()
    config = TrainConfig(
        backend=arguments.backend,
        steps=arguments.steps,
        batch=arguments.batch,
        length=arguments.length,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        evaluate_every=arguments.evaluate_every,
        validation_rows=arguments.validation_rows,
    )
    device = choose_device(arguments.device)
    dist.init_process_group(backend=config.backend)
    try:
        result = train(config, device)
        if dist.get_rank() == 0:
            print(
                f"  {config.backend}: validation loss {result['validation_loss']:.4f} after "
                f"{config.steps} steps in {result['total_seconds']:.1f} s",
                flush=True,
            )
            if arguments.json is not None:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
