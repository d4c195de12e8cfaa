"""`wrap_` on models of transformers: LLaMA, Qwen2, Qwen3, Mistral."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agoq_comm.activation import Policy, Rule, unwrap_, wrap_
from wrapped_models import (
    HEADS,
    HUGGING_FACE,
    WIDTH,
    error,
    gradients,
    held,
    held_by_layer,
    hugging_face,
    loss_of,
    tokens,
)

BOUNDS = {"fp4/128": 0.2, "e2m3/128": 0.05, "int8/128": 0.02}
LORA_RANK = 4


@pytest.mark.parametrize("family", HUGGING_FACE)
def test_losses_are_the_same_and_gradients_near(family: str) -> None:
    model = hugging_face(family, num_key_value_heads=HEADS // 2)
    loss, exact = gradients(model)
    for fmt, bound in BOUNDS.items():
        replaced = wrap_(model, Policy.agoq(fmt))
        assert replaced["model.layers.0.input_layernorm"] == "llama_rms_norm"
        assert replaced["model.layers.1.mlp"] == "gated silu MLP"
        assert ("model.layers.0.self_attn.q_norm" in replaced) == (family == "Qwen3")
        again, found = gradients(model)
        assert torch.equal(loss, again) and 0 < error(found, exact) <= bound
        unwrap_(model)


def test_gpt2() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes = {"n_embd": WIDTH, "n_layer": 2, "n_head": HEADS, "n_positions": 128, "vocab_size": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, use_cache=False))

    def run() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        torch.manual_seed(3)
        return gradients(model)

    loss, exact = run()
    before = held(model, lambda: loss_of(model))
    replaced = wrap_(model, Policy.agoq("int8"))
    assert replaced["transformer.h.0.mlp.c_fc"] == "Conv1D"
    assert replaced["transformer.h.0.mlp.act"] == "gelu_new"
    again, found = run()
    assert torch.equal(loss, again) and error(found, exact) < 0.02
    assert held(model, lambda: loss_of(model)) < 0.4 * before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_layer_holds_less_than_the_paper_says(dtype: torch.dtype) -> None:
    def wrapped(layers: int) -> nn.Module:
        model = hugging_face("Llama", layers).to(dtype)
        wrap_(model)
        return model

    found = held_by_layer(wrapped)
    size = dtype.itemsize / 2
    codes = 2 * 6 / 16 + 2 * 4 * 4 / 16  # Two norms' inputs, the gate and its partner.
    scales = (2 + 2 * 4) / 128
    assert found == pytest.approx(4 * size + 4 * HEADS / (2 * WIDTH) + codes + scales, rel=1e-3)
    assert found < 5 * size + 0.25 + 0.5 + 2 + scales  # The paper's 7.75, and scales, where bf16.
    stock = held_by_layer(lambda layers: hugging_face("Llama", layers).to(dtype))
    assert stock > 26 * size


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant: bool) -> None:
    model = hugging_face("Llama")
    wrap_(model, Policy.agoq("int8"))
    loss, expected = gradients(model)
    plain = held(model, lambda: loss_of(model))
    # The older name warns where there is the newer one.
    older = model.gradient_checkpointing_enable
    getattr(model, "activation_checkpointing_enable", older)({"use_reentrant": reentrant})
    model.train()
    again, found = gradients(model)
    assert torch.equal(loss, again)
    assert all(torch.equal(found[n], expected[n]) for n in expected)
    assert held(model, lambda: loss_of(model)) < plain


def test_text_is_generated_as_before() -> None:
    model = hugging_face("Llama", use_cache=True, eos_token_id=None).eval()
    prompt = tokens(8)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    before = model.generate(prompt, **options)
    wrap_(model)
    assert torch.equal(model.generate(prompt, **options), before)


def test_tied_embeddings_and_hidden_states() -> None:
    model = hugging_face("Qwen2", tie_word_embeddings=True)
    loss, exact = gradients(model)
    before = model(tokens(), output_hidden_states=True).hidden_states
    wrap_(model, Policy.agoq("int8"))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    again, found = gradients(model)
    assert torch.equal(loss, again) and error(found, exact) < 0.02
    after = model(tokens(), output_hidden_states=True).hidden_states
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class LoRA(nn.Module):
    """A frozen layer and a small one beside it, as adapters are made."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.down = nn.Linear(base.in_features, LORA_RANK, bias=False)
        self.up = nn.Linear(LORA_RANK, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.up(self.down(x))


def test_adapters_share_the_codes_of_frozen_layers() -> None:
    model = hugging_face("Llama")
    for parameter in model.parameters():
        parameter.requires_grad = False
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LoRA(getattr(layer.self_attn, name)))
    model.enable_input_require_grads()
    loss, exact = gradients(model)
    before = held(model, lambda: loss_of(model))
    # What a rank of four makes is small, and said to be kept.
    wrap_(model, Policy([Rule("keep", module="*.up"), *Policy.agoq("int8").rules]))
    again, found = gradients(model)
    assert torch.equal(loss, again) and error(found, exact) < 0.02
    assert set(found) == {n for n, p in model.named_parameters() if p.requires_grad}
    assert held(model, lambda: loss_of(model)) < 0.5 * before
