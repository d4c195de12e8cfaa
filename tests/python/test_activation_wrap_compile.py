"""Wrapped layers in torch.compile: one graph, the same gradients, and codes in place of inputs."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

from agoq_comm.activation import Policy, wrap_
from wrapped_models import WIDTH, Llama, demo, features


class Layer(nn.Module):
    """The first layer of the demo's model, with its tables."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        return self.model.blocks[0](x, self.model.cos[:length], self.model.sin[:length])


MODELS = {
    "norm": lambda: nn.Sequential(nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)),
    "gelu": lambda: nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, WIDTH)
    ),
    "gated": lambda: demo(1).blocks[0].mlp,
    "layer": lambda: Layer(demo(1)),
}


def run(call: nn.Module, module: nn.Module) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return output and gradients, and what was saved of activations."""
    saved: list[torch.Tensor] = []
    own = {p.untyped_storage()._cdata for p in (*module.parameters(), *module.buffers())}
    x = features().requires_grad_()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = call(x)
    parameters = [p for p in module.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(y.square().sum(), [x, *parameters], allow_unused=True)
    kept = [t for t in saved if t.untyped_storage()._cdata not in own]
    return [y, *(g for g in gradients if g is not None)], kept


@pytest.mark.parametrize("name", MODELS)
def test_one_graph(name: str) -> None:
    torch._dynamo.reset()
    module = MODELS[name]()
    wrap_(module, Policy.agoq("int8"))
    expected, _ = run(module, module)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found, saved = run(compiled, module)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b)
    codes = [t for t in saved if t.dtype == torch.uint8]
    exact = [t for t in saved if t.dtype != torch.uint8 and t.numel() >= features().numel()]
    assert len(codes) == {"norm": 1, "gelu": 2, "gated": 3, "layer": 4}[name]
    assert len(exact) == (5 if name == "layer" else 0)  # Attention's: Q, K, V, the output twice.


def test_a_change_in_place_is_seen_while_tracing() -> None:
    torch._dynamo.reset()
    norm, linear = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
    wrap_(nn.ModuleList([norm, linear]), Policy.agoq("int8"))

    def changed(x: torch.Tensor) -> torch.Tensor:
        y = norm(x)
        y.mul_(2.0)
        return linear(y)

    torch.compile(changed, fullgraph=True, backend="aot_eager")(features()).sum().backward()
    expected = 2.0 * F.rms_norm(features(), [WIDTH]).sum((0, 1))
    assert linear.weight.grad is not None
    torch.testing.assert_close(linear.weight.grad[0], expected, rtol=0.05, atol=0.5)
