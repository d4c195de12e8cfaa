"""Bytes that are really held between the forward and the backward pass, by the allocator.

In units of what one activation of the residual stream takes in bf16: 2 x batch x length x width.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from agoq_comm.activation import Policy, compress
from agoq_comm.activation.report_measure import measure

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from llama_model import Llama, LlamaConfig, next_token_loss

BATCH, LENGTH, WIDTH = 1, 64, 256
UNIT = 2 * BATCH * LENGTH * WIDTH
TOKENS = torch.randint(0, 256, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(1))


def demo(layers):
    """The model of the demo, and its loss."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig(layers=layers), LENGTH).bfloat16()
    return model, lambda: next_token_loss(model, TOKENS)


def hugging_face(layers):
    """A LLaMA of transformers whose FFN is four times as wide as the model, as in the paper."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install transformers"
    )
    config = transformers.LlamaConfig(
        vocab_size=256,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=4,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).bfloat16()
    rows = TOKENS[:, :-1]
    return model, lambda: model(rows, labels=rows).loss


def held(make, layers, policy):
    """Bytes that the allocator gave out and did not get back, and those that the context counts."""
    model, loss = make(layers)
    if policy is None:
        return measure(loss, torch.device("cpu")).held, 0
    with compress(model, policy) as context:
        counted = []

        def forward():
            result = loss()
            counted.append(context.accounting.stored_bytes)
            return result

        return measure(forward, torch.device("cpu")).held, counted[0]


def per_layer(make, policy):
    """Units that a layer adds, by the allocator and by the context."""
    (two, counted_two), (one, counted_one) = held(make, 2, policy), held(make, 1, policy)
    return (two - one) / UNIT, (counted_two - counted_one) / UNIT


@pytest.mark.parametrize("make,stock_units", [(demo, 27.7), (hugging_face, 28.0)])
def test_a_layer_takes_less_than_eleven_units(make, stock_units):
    stock, _ = per_layer(make, None)
    agoq, counted = per_layer(make, Policy.agoq())
    print(f"{make.__name__}: {stock:.2f} units a layer, {agoq:.2f} by Policy.agoq()")
    assert stock >= stock_units
    assert agoq <= 11
    # What the context counts is what the allocator gave out.
    assert agoq == pytest.approx(counted, abs=1e-9)


@pytest.mark.parametrize("make", [demo, hugging_face])
def test_gradients_are_near_the_exact_ones(make):
    model, loss = make(2)
    model.float()  # Which is faster here; bf16 would add its own roundings to all alike.

    def gradient(policy):
        model.zero_grad()
        with compress(model, policy) as context:
            value = loss()
        value.backward()
        assert context.accounting.stored_bytes == 0
        return torch.cat([p.grad.flatten().float() for p in model.parameters()])

    loss().backward()
    stock = torch.cat([p.grad.flatten().float() for p in model.parameters()])
    assert torch.equal(gradient(Policy.exact()), stock)
    for format, bound in (("fp4", 0.2), ("e2m3", 0.05), ("int8", 0.02)):
        error = ((gradient(Policy.agoq(format)) - stock).norm() / stock.norm()).item()
        print(f"{make.__name__}: gradient error {error:.4f} in {format}")
        assert error <= bound
