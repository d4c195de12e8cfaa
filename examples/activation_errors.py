"""Measure what gradients lose where activations are stored in few bits, and what is held then.

    python examples/activation_errors.py     # rewrites docs/data/activation_errors.json and the
                                             # tables in docs/activation_wrap.md

Gradients are those of all parameters of the small LLaMA-style model after some training. Errors are
relative, in the L2 norm, against the gradient of the model as it is, on the same rows. A line of
the first table stores the inputs of one kind of layer in few bits, and everything else exactly. The
second table is of norms alone, whose error shrinks as they get wider.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from agoq_comm.activation import Policy, Rule, compress, dequantize, quantize, unwrap_, wrap_
from launch import ROOT
from llama_model import Llama, LlamaConfig, next_token_loss
from stdlib_corpus import batches, load_corpus, windows
from three_seeds import replace_table

LENGTH, ROWS = 128, 4
WIDTH = 256
FORMATS = {"fp4/128": "4 bits", "e2m3/128": "6 bits", "int8/128": "8 bits"}
# Of the paper (AGoQ, arXiv 2605.00539): 4 bits, a model of another size, its own normalized L2.
PAPER = {"norm": 0.003, "GEMM": 0.026, "SiLU": 0.051, "V": 0.059, "Q": 0.14, "K": 0.15}

Context = Callable[[nn.Module, str], AbstractContextManager[Any]]


# --- what is stored in few bits ------------------------------------------------------------------


@contextlib.contextmanager
def wrapped(model: nn.Module, policy: Policy) -> Iterator[None]:
    """Let the model store its activations as a policy says."""
    wrap_(model, policy)
    try:
        yield
    finally:
        unwrap_(model)


def inputs_of(tensor_class: str) -> Context:
    """Store the inputs of one class of layers in few bits, and recompute nothing."""

    def context(model: nn.Module, fmt: str) -> AbstractContextManager[None]:
        rules = [Rule(fmt, tensor_class=tensor_class)]
        return wrapped(model, Policy(rules, recompute=False))

    return context


class Attention(TorchFunctionMode):
    """Stores some of the inputs of attention in few bits, which `Policy.agoq` never does."""

    def __init__(self, inputs: Iterable[int], fmt: str) -> None:
        super().__init__()
        self.inputs, self.fmt = tuple(inputs), fmt

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Replace what attention saves, and pass on all other calls."""
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        chosen = {args[index].data_ptr() for index in self.inputs}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.data_ptr() not in chosen:
                return tensor
            return dequantize(quantize(tensor, self.fmt)).view(tensor.shape)

        with saved_tensors_hooks(pack, lambda tensor: tensor):
            return func(*args, **(kwargs or {}))


def attention(*inputs: int) -> Context:
    """Store Q (0), K (1), V (2) in few bits."""
    return lambda _model, fmt: Attention(inputs, fmt)


@contextlib.contextmanager
def uniform(model: nn.Module, fmt: str) -> Iterator[None]:
    """Store Q, K and V like the rest."""
    with wrapped(model, Policy.agoq(fmt)), Attention((0, 1, 2), fmt):
        yield


KINDS: dict[str, Context] = {
    "norm": inputs_of("norm"),
    "GEMM": inputs_of("linear"),
    "SiLU": inputs_of("mlp"),
    "V": attention(2),
    "Q": attention(0),
    "K": attention(1),
    "**all but attention: `Policy.agoq(...)`**": lambda model, fmt: wrapped(
        model, Policy.agoq(fmt)
    ),
    "the same, norms no wider: `Policy.agoq(..., norm=...)`": lambda model, fmt: wrapped(
        model, Policy.agoq(fmt, norm=fmt)
    ),
    "control: attention too": uniform,
}


# --- errors --------------------------------------------------------------------------------------


def trained(steps: int) -> tuple[Llama, Iterator[torch.Tensor]]:
    """Return the model after `steps` of training, and the rows that follow."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig(width=WIDTH, hidden=4 * WIDTH), LENGTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    stream = batches(windows(load_corpus().train, LENGTH), ROWS, 0, 1, 0)
    for _ in range(steps):
        next_token_loss(model, next(stream)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, stream


def gradient(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Return the gradient of all parameters, flat."""
    loss = next_token_loss(model, rows)
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


def errors(model: nn.Module, samples: list[torch.Tensor]) -> dict[str, dict[str, float]]:
    """Return the error of each kind in each format, the mean over samples."""
    exact = [gradient(model, rows) for rows in samples]
    result: dict[str, dict[str, float]] = {}
    for kind, context in KINDS.items():
        result[kind] = {}
        for fmt in FORMATS:
            with context(model, fmt):
                found = [gradient(model, rows) for rows in samples]
            lost = [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
            result[kind][fmt] = sum(lost) / len(lost)
    other = [float((a - b).norm() / b.norm()) for a, b in itertools.pairwise(exact)]
    result["for comparison: other rows"] = {"exact": sum(other) / len(other)}
    return result


def errors_of_norms() -> dict[int, float]:
    """Return the error of the gradient that a norm hands on, in 4 bits, of random numbers."""
    result = {}
    for width in (128, 256, 1024, 4096):
        norm = nn.RMSNorm(width)
        x, upstream = torch.randn(64, width, requires_grad=True), torch.randn(64, width)
        (exact,) = torch.autograd.grad(norm(x), [x], upstream)
        with wrapped(norm, Policy.agoq(norm="fp4")):
            (found,) = torch.autograd.grad(norm(x), [x], upstream)
        result[width] = float((found - exact).norm() / exact.norm())
    return result


# --- memory --------------------------------------------------------------------------------------


def held(model: nn.Module, rows: torch.Tensor) -> int:
    """Count the bytes that the graph of a loss holds, each storage once, parameters never."""
    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = next_token_loss(model, rows)
    assert loss.requires_grad
    return sum(s.nbytes() for address, s in storages.items() if address not in own)


def held_by_layer(dtype: torch.dtype, way: str) -> float:
    """Return what one more layer holds, in units of two bytes for each of its features."""
    rows = torch.zeros(ROWS, LENGTH + 1, dtype=torch.long)
    found = []
    for layers in (1, 2):
        config = LlamaConfig(width=WIDTH, hidden=4 * WIDTH, layers=layers)
        model = Llama(config, LENGTH).to(dtype)
        if way == "`compress`":
            with compress(model) as context:
                loss = next_token_loss(model, rows)
                found.append(context.accounting.stored_bytes)
            loss.backward()
            continue
        if way == "`wrap_`":
            wrap_(model)
        found.append(held(model, rows))
    return (found[1] - found[0]) / (2 * ROWS * LENGTH * WIDTH)


# --- tables --------------------------------------------------------------------------------------

Record = dict[str, Any]


def error_lines(record: Record) -> list[list[str]]:
    """Lay out the errors, headings first."""
    lines = [["stored in few bits", *FORMATS.values(), "paper, 4 bits"]]
    for kind, found in record["errors"].items():
        cells = [f"{found[fmt]:.4f}" if fmt in found else "" for fmt in FORMATS]
        if "exact" in found:
            cells[0] = f"{found['exact']:.2f}"
        lines.append([kind, *cells, str(PAPER.get(kind, ""))])
    return lines


def norm_lines(record: Record) -> list[list[str]]:
    """Lay out the errors of norms by width, headings first."""
    found = record["norms"]
    return [
        ["width of a norm", *map(str, found)],
        ["error, 4 bits", *(f"{e:.4f}" for e in found.values())],
    ]


def memory_lines(record: Record) -> list[list[str]]:
    """Lay out what is held, headings first."""
    lines = [["units of 2·B·S·H bytes", "bf16", "fp32"]]
    for way, found in record["held"].items():
        lines.append([way, *(f"{units:.2f}" for units in found.values())])
    return lines


def markdown(lines: list[list[str]]) -> str:
    """Write lines as a table of Markdown."""
    rule = ["---"] * len(lines[0])
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def show(title: str, lines: list[list[str]]) -> None:
    """Print lines as a table."""
    table = Table(*lines[0], title=title)
    for line in lines[1:]:
        table.add_row(*(cell.replace("**", "").replace("`", "") for cell in line))
    Console().print(table)


def main() -> None:
    """Measure, record, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100, help="steps of training before")
    parser.add_argument("--samples", type=int, default=4, help="gradients that are compared")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()
    model, stream = trained(arguments.steps)
    samples = [next(stream) for _ in range(arguments.samples)]
    sizes = (torch.bfloat16, torch.float32)
    record: Record = {
        "errors": errors(model, samples),
        "norms": errors_of_norms(),
        "held": {
            way: {str(dtype)[6:]: held_by_layer(dtype, way) for dtype in sizes}
            for way in ("as it is", "`compress`", "`wrap_`")
        },
    }
    path = arguments.docs / "data" / "activation_errors.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    page = arguments.docs / "activation_wrap.md"
    text = replace_table(page.read_text(), markdown(error_lines(record)), "errors")
    text = replace_table(text, markdown(norm_lines(record)), "norms")
    page.write_text(replace_table(text, markdown(memory_lines(record)), "held"))
    show("Relative error of the gradient of all parameters", error_lines(record))
    show("Relative error of the gradient that a norm hands on", norm_lines(record))
    show("What a layer holds between the passes", memory_lines(record))


if __name__ == "__main__":
    main()
