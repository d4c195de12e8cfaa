"""Count the training memory of a rank, as it is and with what this library makes smaller.

    python examples/activation_memory.py     # rewrites docs/data/activation_memory.json and the
                                             # table of memory in docs/activation_training.md

Four ranks: two share the LLaMA-style model by tensors and sequence, and there are two replicas. The
8-bit Adam is torchao's. Bytes are counted at tensors that are alive, by torch's allocator where
the forward pass's are freed, and by the C library for the peak; this needs glibc 2.33.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
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
from torch.utils._python_dispatch import TorchDispatchMode

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
MICRO_BATCHES, STEPS_RUN, REPETITIONS = 2, 2, 5
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


def held(forward: Callable[[], torch.Tensor], groups: Iterable[dist.ProcessGroup]) -> int:
    """Count the bytes that are freed with the loss that `forward` returns.

    What was allocated and not freed is no measure: the profiler hears this thread alone, and a
    group's thread, which lets go of what it sent when it may, often frees it last. Once the groups
    are idle, what a loss holds is freed here, all of it and nothing else.
    """
    losses: list[torch.Tensor] = []
    measure(lambda: losses.append(forward()), CPU)  # Only what it saw allocated has a known size.
    for group in groups:
        dist.barrier(group)
    return -measure(losses.clear, CPU).held


class _InUse(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class Peak(TorchDispatchMode):
    """Notes the most that the process has in use after an operator, beyond what it had before all.

    The C library is asked, which every thread allocates from.
    """

    def __init__(self) -> None:
        super().__init__()
        self._mallinfo = ctypes.CDLL(None).mallinfo2
        self._mallinfo.restype = _InUse
        self._before = self._in_use()
        self.bytes = 0

    def _in_use(self) -> int:
        info = self._mallinfo()
        return int(info.uordblks + info.hblkhd)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the operator, then look."""
        result = func(*args, **(kwargs or {}))
        self.bytes = max(self.bytes, self._in_use() - self._before)
        return result


def peak(step: Callable[[], object], groups: Iterable[dist.ProcessGroup]) -> int:
    """Count the bytes that a step has in use at most, beyond those in use before it."""
    gc.collect()
    for group in groups:
        dist.barrier(group)
    with Peak() as noted:
        step()
    return noted.bytes


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
        activations = {held(forward, (replicas, members)) for _ in range(REPETITIONS)}
        if len(activations) > 1:
            raise RuntimeError(f"held by one forward pass: {sorted(activations)} bytes; not equal")
        # How soon a group's thread lets go of what it sent is a matter of time: the most is taken.
        most = max(peak(step, (replicas, members)) for _ in range(REPETITIONS))
    found["activations"] = activations.pop()
    found["parameters"] = nbytes(model.parameters())
    states = [value for state in optimizer.state.values() for value in state.values()]
    found["optimizer"] = nbytes(states)
    # Before a step there are no gradients but those that are encoded.
    encoded = found["gradients"] if variant.gradients else 0
    found["peak"] = most + encoded + found["parameters"] + found["optimizer"]
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
    kept = {(v.activations, row["activations"]) for v, row in zip(VARIANTS, rows, strict=True)}
    if len(kept) > 2:
        raise RuntimeError(f"activations differ where gradients or Adam's state do: {sorted(kept)}")
    labelled = {v.label: row for v, row in zip(VARIANTS, rows, strict=True)}
    path = arguments.docs / "data" / "activation_memory.json"
    path.write_text(json.dumps(record | {"bytes": labelled}, indent=1) + "\n")
    page = arguments.docs / "activation_training.md"
    page.write_text(replace_table(page.read_text(), table(rows), "memory"))
    print(table(rows))


if __name__ == "__main__":
    sys.exit(main())
