"""What is between the linear layers of an MLP: an activation function, alone or as a gate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from agoq_comm.activation.formats import Format
from agoq_comm.activation.fused.bits import pack_bits, unpack_bits
from agoq_comm.activation.fused.recipe import Method, Stored, attach, store

_aten = torch.ops.aten


def _gelu_new(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1.0 + torch.tanh(inner))


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def _quick_gelu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(1.702 * x)
    return grad * (s + 1.702 * x * s * (1.0 - s))


def _gelu_tanh_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _aten.gelu_backward(grad, x, approximate="tanh")


class Activation(NamedTuple):
    """A function of each element, and its gradient: of the output's gradient and of the input."""

    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# gelu_new and quick_gelu are written out as Hugging Face does: other ways round differently.
ACTIVATIONS: dict[str, Activation] = {
    "silu": Activation(F.silu, lambda grad, x: _aten.silu_backward(grad, x)),
    "gelu": Activation(F.gelu, lambda grad, x: _aten.gelu_backward(grad, x)),
    "gelu_tanh": Activation(lambda x: F.gelu(x, approximate="tanh"), _gelu_tanh_backward),
    "gelu_new": Activation(_gelu_new, _gelu_tanh_backward),
    "quick_gelu": Activation(_quick_gelu, _quick_gelu_backward),
    "relu": Activation(F.relu, lambda grad, x: _aten.threshold_backward(grad, x, 0)),
}


def _signs(x: torch.Tensor, kind: str) -> torch.Tensor | None:
    """Say where a ReLU lets gradients pass, which small numbers in few bits have forgotten."""
    return pack_bits(x.detach() > 0) if kind == "relu" else None


def _backward(
    grad: torch.Tensor, x: torch.Tensor, signs: torch.Tensor | None, kind: str
) -> torch.Tensor:
    if signs is not None:
        return grad * unpack_bits(signs, x.shape)
    return ACTIVATIONS[kind].backward(grad, x)


class _Activated(Method):
    def __init__(self, stored: Stored, kind: str) -> None:
        super().__init__()
        self.stored, self.kind = stored, kind

    def compute(self, *sources: Any) -> torch.Tensor:
        return ACTIVATIONS[self.kind].forward(self.stored.decode_early(sources[0]))


class _Gated(Method):
    def __init__(self, gate: Stored, up: Stored, kind: str) -> None:
        super().__init__()
        self.gate, self.up, self.kind = gate, up, kind

    def compute(self, *sources: Any) -> torch.Tensor:
        gate, up = self.gate.decode_early(sources[0]), self.up.decode_early(sources[1])
        return ACTIVATIONS[self.kind].forward(gate) * up


def activation(x: torch.Tensor, kind: str, fmt: Format, recompute: bool) -> torch.Tensor:
    """Apply an activation function, and save nothing but `x` in the format `fmt`.

    Parameters
    ----------
    x : torch.Tensor
        fp32, bf16 or fp16.
    kind : str
        A key of `ACTIVATIONS`.
    fmt : Format
        How the input is stored.
    recompute : bool
        Let the output carry its recipe.
    """
    stored, data = store(x, fmt)
    method = _Activated(stored, kind)
    output: torch.Tensor = _Activation.apply(  # type: ignore[no-untyped-call]
        x, data, _signs(x, kind), method
    )
    return attach(output, method, data) if recompute else output


def gated(
    gate: torch.Tensor, up: torch.Tensor, kind: str, fmt: Format, recompute: bool
) -> torch.Tensor:
    """Multiply `up` by the activation of `gate`, and save nothing but these in the format `fmt`.

    Parameters are those of `activation`.
    """
    stored_gate, gate_data = store(gate, fmt)
    stored_up, up_data = store(up, fmt)
    method = _Gated(stored_gate, stored_up, kind)
    output: torch.Tensor = _GatedActivation.apply(  # type: ignore[no-untyped-call]
        gate, up, gate_data, up_data, _signs(gate, kind), method
    )
    return attach(output, method, gate_data, up_data) if recompute else output


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, data: Any, signs: Any, method: _Activated) -> Any:
        ctx.save_for_backward(data, signs)
        ctx.method = method
        return ACTIVATIONS[method.kind].forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        data, signs = ctx.saved_tensors
        method: _Activated = ctx.method
        method.forget()
        x = method.stored.decode_last(data)
        return _backward(grad, x, signs, method.kind), None, None, None


class _GatedActivation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gate: Any, up: Any, gate_data: Any, up_data: Any, signs: Any, method: _Gated
    ) -> Any:
        ctx.save_for_backward(gate_data, up_data, signs)
        ctx.method = method
        return ACTIVATIONS[method.kind].forward(gate) * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        gate_data, up_data, signs = ctx.saved_tensors
        method: _Gated = ctx.method
        method.forget()
        # In the order that holds the fewest tensors at once.
        up = method.up.decode_last(up_data)
        grad_activated = grad * up if ctx.needs_input_grad[0] else None
        del up
        gate = method.gate.decode_last(gate_data)
        grad_gate = grad_up = None
        if grad_activated is not None:
            grad_gate = _backward(grad_activated, gate, signs, method.kind)
            del grad_activated
        if ctx.needs_input_grad[1]:
            grad_up = grad * ACTIVATIONS[method.kind].forward(gate)
        return grad_gate, grad_up, None, None, None, None
