"""Count the training memory of a rank, as it is and with what this library makes smaller.

    python examples/activation_memory.py     # rewrites docs/data/activation_memory.json and the
                                             # table of memory in docs/activation_training.md

Four ranks: two share the LLaMA-style model by tensors and sequence, and there are two replicas. The
8-bit Adam is torchao's. Every byte is counted at tensors that are alive, or by the allocator.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import agoq_comm
from agoq_comm import sequence_parallel as sp
from agoq_comm.activation import Policy, Rule, compress
from agoq_comm.activation.report_measure import measure
from agoq_comm.gradients import GradientClipping, QuantizedGradients
from launch import ROOT, torchrun
from llama_model import Llama, LlamaConfig, next_token_loss
from parallel_llama import ParallelLlama
from parallel_steps import STEPS
from three_seeds import replace_table

RANKS, TENSOR_RANKS = 4, 2
MICRO_BATCHES, STEPS_RUN = 2, 2
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Variant:
    """What is made smaller."""

    label: str
    activations: bool = False
    gradients: bool = False
    optimizer: bool = False


VARIANTS = (
    Variant("as it is, sequence-parallel"),
    Variant("activations in few bits", activations=True),
    Variant("and gradients in 8 bits", activations=True, gradients=True),
    Variant("and Adam's state in 8 bits", activations=True, gradients=True, optimizer=True),
)


def agoq_of_blocks(config: LlamaConfig, length: int) -> Policy:
    """`Policy.agoq` for parallel_llama.py, whose attention, norms and MLP are parts of one module.

    What its blocks save is told by the length of the rows. Q, K, V and what attention made of them
    have that of a head, and the statistics of its softmax one number for each place in the text;
    then come the inputs of norms, and the longest are the MLP's.
    """
    reason = "attention is exact"
    longest = max(config.width // config.heads, length)
    assert longest < config.width < config.hidden // TENSOR_RANKS
    of_blocks = (
        Rule("keep", type="_Block", max_row=longest, reason=reason),
        Rule("keep", module="*.out", reason=reason),
        Rule("e2m3", type="_Block", max_row=config.width),
        Rule("fp4", type="_Block"),
    )
    return Policy((*of_blocks, *Policy.agoq().rules))


def make_optimizer(model: torch.nn.Module, narrow: bool) -> torch.optim.Optimizer:
    """AdamW with fp32 state, or torchao's with 8 bits."""
    if not narrow:
        return torch.optim.AdamW(model.parameters(), 1e-3)
    from torchao.optim import AdamW8bit

    return AdamW8bit(model.parameters(), 1e-3)


def nbytes(tensors: Iterable[Any]) -> int:
    """Bytes of distinct storages; a tensor made of tensors, as torchao's, is these."""
    sizes: dict[int, int] = {}
    waiting = [x for x in tensors if isinstance(x, torch.Tensor)]
    while waiting:
        x = waiting.pop()
        if hasattr(x, "__tensor_flatten__"):
            waiting += [getattr(x, name) for name in x.__tensor_flatten__()[0]]
        else:
            storage = x.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def count(variant: Variant, config: LlamaConfig, batch: int, length: int) -> dict[str, float]:
    """Train a few steps; return the bytes of this rank."""
    everything = ("all_reduce", "reduce_scatter", "all_gather")
    mesh = init_device_mesh(
        "cpu",
        (RANKS // TENSOR_RANKS, TENSOR_RANKS),
        mesh_dim_names=("replicas", "model"),
        backend_override={
            "model": ("agoq", agoq_comm.Options(quantize=everything, min_numel=1024)),
            "replicas": ("agoq", agoq_comm.Options()),
        },
    )
    replicas, members = mesh.get_group("replicas"), mesh.get_group("model")
    torch.manual_seed(0)
    model = ParallelLlama(Llama(config, length), members)
    optimizer = make_optimizer(model, variant.optimizer)
    split, first = model.split_parameters(), members.rank() == 0
    clipping = GradientClipping(1.0, members, lambda p: p in split or first)
    way = STEPS["encoded" if variant.gradients else "exact"]
    stepper = way(model, optimizer, replicas, clipping)
    context = (
        compress(model, agoq_of_blocks(config, length))
        if variant.activations
        else contextlib.nullcontext()
    )
    tokens = torch.randint(0, 256, (batch, length + 1))
    policy = sp.QuantizationPolicy() if variant.activations else sp.EXACT

    def forward() -> torch.Tensor:
        with context:
            return next_token_loss(model, tokens)

    def step(note: Callable[[], None] = lambda: None) -> float:
        for index in range(MICRO_BATCHES):
            last = index == MICRO_BATCHES - 1
            with stepper.micro_batch(last):
                loss = forward() / MICRO_BATCHES
                loss.backward()
            if not last:
                note()
        stepper.finish()
        return loss.item()

    def gradients() -> int:
        encoded = [
            bucket.data
            for value in vars(stepper).values()
            if isinstance(value, QuantizedGradients)
            for bucket in value.buckets
        ]
        return nbytes([*(p.grad for p in model.parameters()), *encoded])

    found: dict[str, float] = {}
    with sp.use_policy(policy):
        for _ in range(STEPS_RUN):
            step(lambda: found.update(gradients=gradients()))
        # A thread that sends lets go of its tensors when it may, and the profiler of this thread
        # does not hear of it: the least is what the forward pass holds.
        found["activations"] = min(measure(forward, CPU).held for _ in range(7))
        # Before a step there are no gradients but those that are encoded.
        before = found["gradients"] if variant.gradients else 0
        peak = min(measure(step, CPU).peak for _ in range(5))
    found["parameters"] = nbytes(model.parameters())
    states = [value for state in optimizer.state.values() for value in state.values()]
    found["optimizer"] = nbytes(states)
    found["peak"] = peak + before + found["parameters"] + found["optimizer"]
    return found


def run(arguments: argparse.Namespace) -> None:
    """Count on each rank; rank 0 writes the largest."""
    dist.init_process_group("agoq")
    config = LlamaConfig()
    rows = []
    # Not compiled: for one step the memory is what matters, and compiling takes minutes.
    with patch.object(torch, "compile", lambda function, **_: function):
        for variant in VARIANTS:
            found = count(variant, config, arguments.batch, arguments.length)
            everyones: list[Any] = [None] * RANKS
            dist.all_gather_object(everyones, found)
            rows.append({k: max(own[k] for own in everyones) for k in found})
    if dist.get_rank() == 0:
        arguments.json.write_text(json.dumps(rows))
    dist.destroy_process_group()


def table(rows: list[dict[str, float]]) -> str:
    """Lay out the record as Markdown, in MiB."""
    names = ("parameters", "activations", "gradients", "optimizer")
    base = sum(rows[0][name] for name in names)
    lines = [
        "| MiB of a rank | parameters | A: activations | G: gradients | O: Adam | sum | "
        "against as it is | A + G + O | peak of a step |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for variant, row in zip(VARIANTS, rows, strict=True):
        total = sum(row[name] for name in names)
        parts = " | ".join(f"{row[name] / 2**20:.1f}" for name in names)
        ours, theirs = total - row["parameters"], base - rows[0]["parameters"]
        lines.append(
            f"| {variant.label} | {parts} | {total / 2**20:.1f} | {total / base - 1:+.0%} | "
            f"{ours / theirs - 1:+.0%} | {row['peak'] / 2**20:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Start the ranks and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        run(arguments)
        return
    sizes = ["--batch", str(arguments.batch), "--length", str(arguments.length)]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.json"
        torchrun(RANKS, "examples/activation_memory.py", *sizes, "--json", str(path))
        rows = json.loads(path.read_text())
    record = {"torch": torch.__version__, "batch": arguments.batch, "length": arguments.length}
    labelled = {v.label: row for v, row in zip(VARIANTS, rows, strict=True)}
    path = arguments.docs / "data" / "activation_memory.json"
    path.write_text(json.dumps(record | {"bytes": labelled}, indent=1) + "\n")
    page = arguments.docs / "activation_training.md"
    page.write_text(replace_table(page.read_text(), table(rows), "memory"))
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())
