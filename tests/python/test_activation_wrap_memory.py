"""What wrapped models hold between the passes, measured."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from agoq_comm.activation import Policy, compress, wrap_
from agoq_comm.activation.fused.recipe import Method, Stored
from wrapped_models import (
    BATCH,
    HEADS,
    LENGTH,
    WIDTH,
    Gpt,
    demo,
    features,
    held,
    held_by_layer,
    loss_of,
    sequential,
)

# Codes of E2M3, and one bf16 scale for 128 of them, in bytes an element of a norm's input.
E2M3 = (6 + 16 / 128) / 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hidden", [4 * WIDTH, 2 * WIDTH + 88])
def test_a_layer_holds_less_than_the_paper_says(dtype: torch.dtype, hidden: int) -> None:
    def wrapped(layers: int) -> nn.Module:
        model = demo(layers, hidden).to(dtype)
        wrap_(model, Policy.agoq())
        return model

    found = held_by_layer(wrapped)
    size, ratio = dtype.itemsize / 2, hidden / WIDTH
    codes = 2 * 6 / 16 + 2 * ratio * 4 / 16  # Two norms' inputs, the gate and its partner.
    scales = (2 + 2 * ratio) / 128
    # Q, K, V and the output; a number in fp32 for each row and head.
    attention = 4 * size + 4 * HEADS / (2 * WIDTH)
    assert found == pytest.approx(attention + codes + scales, rel=1e-3)
    paper = 5 * size + 0.25 + 0.5 + 0.5 * ratio + scales
    assert found < paper
    assert held_by_layer(lambda layers: demo(layers, hidden).to(dtype)) > 3 * found


def test_codes_are_freed_with_their_backward_pass() -> None:
    model = demo()
    wrap_(model, Policy.agoq())
    codes: list[weakref.ref[torch.Tensor]] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.uint8:
            codes.append(weakref.ref(tensor))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(model)
    assert len(codes) > 10 and all(code() is not None for code in codes)
    left: list[int] = []
    first = model.blocks[1].attention_norm.weight
    first.register_post_accumulate_grad_hook(
        lambda _: left.append(sum(code() is not None for code in codes))
    )
    loss.backward()
    assert left[0] < len(codes)  # The second layer's are gone while the first one's are there.
    assert all(code() is None for code in codes)


def test_what_is_frozen_needs_nothing() -> None:
    model = nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    for parameter in (*model[0].parameters(), *model[1].parameters(), *model[2].parameters()):
        parameter.requires_grad = False
    model[2].bias.requires_grad = True
    wrap_(model, Policy.agoq())
    x = features().requires_grad_()
    assert held(model, lambda: model(x)) == round(x.numel() * E2M3)  # For the norm itself.
    model(x).sum().backward()
    assert x.grad is not None and model[2].bias.grad is not None
    assert held(model, lambda: model(features())) == 0


def test_without_recomputation_inputs_are_stored() -> None:
    model = nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False))
    wrap_(model, Policy([], "int8", recompute=False))
    x = features().requires_grad_()
    assert held(model, lambda: model(x)) == 2 * x.numel() * (1 + 2 / 128)


def test_within_compress_codes_are_held_once() -> None:
    model = demo()
    with compress(model) as plain:
        loss_of(model)
        without = plain.accounting.peak_stored_bytes
    wrap_(model)
    with compress(model) as context:
        loss = loss_of(model)
        assert context.accounting.peak_stored_bytes < 0.75 * without
    loss.backward()
    assert context.accounting.stored_bytes == 0


def test_nothing_decoded_is_left() -> None:
    model = demo()
    wrap_(model)
    gc.collect()
    before = {id(o) for o in gc.get_objects()}
    loss = loss_of(model)
    loss.backward()
    objects = [o for o in gc.get_objects() if id(o) not in before]
    stored = [o for o in objects if type(o) is Stored]
    assert len(stored) > 5 and all(o._decoded is None for o in stored)
    assert all(o._value is None for o in objects if Method in type(o).__mro__)
    assert loss.grad_fn is not None


@pytest.mark.parametrize("first", [nn.RMSNorm(WIDTH), nn.SiLU(), nn.Identity()])
def test_nothing_decoded_is_left_by_a_part_of_a_pass(first: nn.Module) -> None:
    model = nn.ModuleList([first, nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)])
    wrap_(model)
    gc.collect()
    before = {id(o) for o in gc.get_objects()}
    x = model[0](features().requires_grad_() * 1.0)
    one, other = model[1](x), model[2](x)
    both = torch.autograd.grad((one + other).sum(), [model[2].weight], retain_graph=True)
    objects = [o for o in gc.get_objects() if id(o) not in before]
    methods = [o for o in objects if Method in type(o).__mro__]
    stored = [o for o in objects if type(o) is Stored]
    assert methods and all(o._value is None and o._served == 0 for o in methods)
    assert stored and all(o._decoded is None for o in stored)
    again = torch.autograd.grad(other.sum(), [model[2].weight])
    assert torch.equal(both[0], again[0])


def test_dropout_holds_a_bit_for_each_element() -> None:
    plain, dropping = Gpt(sequential()), Gpt(sequential(0.1))
    for model in (plain, dropping):
        wrap_(model)
    x = features().requires_grad_()
    bits = BATCH * LENGTH * (4 * WIDTH + WIDTH) / 8
    assert held(dropping, lambda: dropping(x)) == held(plain, lambda: plain(x)) + bits
