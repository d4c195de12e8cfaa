"""Speed of storing activations on one core, beside bitsandbytes and torchao, and within a step.

Usage::

    pytest bench/test_activation_benchmark.py --benchmark-json activation.json
    pytest bench/test_activation_benchmark.py -k "dequantize and 16-MiB"

All move the same bf16 numbers; GB_per_s among the extra columns of the JSON counts those. Rows of
one group do like work: bitsandbytes packs its own fp4 and nf4 in blocks of 128, torchao MXFP4 in
blocks of 32. Memcpy copies the numbers as they are. The last group is a training step of the demo's
model, as it is and with its activations stored by `Policy.agoq`; part_of_step says how much of the
latter the quantizing and its reversal are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from agoq_comm.activation import Policy, compress, dequantize, quantize, store

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from llama_model import Llama, LlamaConfig, next_token_loss

_MIB = 2**20
SIZES = {"256-KiB": 256 * 1024, "1-MiB": _MIB, "16-MiB": 16 * _MIB}
FORMATS = ("fp4", "e2m3", "int8")
# Relative L2 error that 4 bits a number may cost on normally distributed numbers.
_ERROR_BOUND = 0.15

# Of a contender: numbers to stored, and stored to numbers.
Pair = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The codec uses the caller's thread; the others may use no more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _agoq(format: str) -> Pair:
    return lambda x: quantize(x, format), dequantize


def _bitsandbytes(kind: str) -> Pair:
    bnb = pytest.importorskip(
        "bitsandbytes.functional", reason="bitsandbytes is not installed: pip install bitsandbytes"
    )
    return (
        lambda x: bnb.quantize_4bit(x, blocksize=128, quant_type=kind),
        lambda stored: bnb.dequantize_4bit(*stored),
    )


def _torchao() -> Pair:
    mx = pytest.importorskip(
        "torchao.prototype.mx_formats.mx_tensor",
        reason="torchao is not installed: pip install torchao",
    )
    return (
        lambda x: mx.MXTensor.to_mx(x, torch.float4_e2m1fn_x2, 32),
        lambda stored: stored.dequantize(torch.bfloat16),
    )


def _memcpy() -> Pair:
    return torch.clone, torch.clone


CONTENDERS: dict[str, Callable[[], Pair]] = {
    **{f"agoq-{name}": lambda name=name: _agoq(name) for name in FORMATS},
    "bitsandbytes-fp4": lambda: _bitsandbytes("fp4"),
    "bitsandbytes-nf4": lambda: _bitsandbytes("nf4"),
    "torchao-mxfp4": _torchao,
    "memcpy": _memcpy,
}


@pytest.mark.parametrize("name", CONTENDERS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("work", ["quantize", "dequantize"])
def test_codec(benchmark: BenchmarkFixture, work: str, size: str, name: str) -> None:
    """Time one contender at one size."""
    x = torch.randn(SIZES[size] // 2048, 1024, generator=torch.Generator().manual_seed(1))
    x = x.bfloat16()
    there, back = CONTENDERS[name]()
    stored = there(x)
    benchmark.group = f"{work} {size}"
    if work == "quantize":
        benchmark(there, x)
    else:
        benchmark(back, stored)
    # What computes something else is no contender.
    error = ((back(stored).float() - x.float()).norm() / x.float().norm()).item()
    assert error < _ERROR_BOUND
    if benchmark.stats is not None:  # None with --benchmark-disable
        benchmark.extra_info["GB_per_s"] = SIZES[size] / benchmark.stats["median"] / 1e9
        benchmark.extra_info["relative_error"] = error


class _Clock:
    """Seconds of this process's own time in calls of functions that it surrounds."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def surround(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def surrounded(*args: Any) -> Any:
            start = time.process_time()
            result = function(*args)
            self.seconds += time.process_time() - start
            return result

        return surrounded


@pytest.mark.parametrize("policy", ["stock", "exact", *FORMATS])
def test_step(benchmark: BenchmarkFixture, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Time a step of the demo's model: forward and backward pass, and the optimizer."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig(), 128)
    rows = torch.randint(0, 256, (8, 129))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    policies = {"exact": Policy.exact(), **{name: Policy.agoq(name) for name in FORMATS}}
    clock = _Clock()
    monkeypatch.setattr(store, "quantize", clock.surround(store.quantize))
    monkeypatch.setattr(store, "dequantize", clock.surround(store.dequantize))

    def forward() -> torch.Tensor:
        if policy == "stock":
            return next_token_loss(model, rows)
        with compress(model, policies[policy]):
            return next_token_loss(model, rows)

    total = 0.0

    def step() -> float:
        nonlocal total
        start = time.process_time()
        loss = forward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += time.process_time() - start
        return loss.item()

    benchmark.group = "step"
    losses = [benchmark.pedantic(step, rounds=8, warmup_rounds=1), step()]
    assert losses[1] < losses[0] < 6
    benchmark.extra_info["part_of_step"] = clock.seconds / total
