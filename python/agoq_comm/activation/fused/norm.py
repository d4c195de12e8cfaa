"""RMSNorm and LayerNorm, from their quantized input alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from agoq_comm.activation.formats import Format
from agoq_comm.activation.fused.recipe import Method, Stored, attach, store

_Weight = torch.Tensor | None


def _normalized(x: torch.Tensor, spec: NormSpec) -> torch.Tensor:
    values = x.to(torch.float32)
    variance = values.pow(2).mean(-1, keepdim=True)
    return values * torch.rsqrt(variance + spec.added)


def _torch_rms(x: torch.Tensor, weight: _Weight, _bias: _Weight, spec: NormSpec) -> torch.Tensor:
    return F.rms_norm(x, spec.shape, weight, spec.eps)


def _llama(x: torch.Tensor, weight: _Weight, _bias: _Weight, spec: NormSpec) -> torch.Tensor:
    assert weight is not None
    return weight * _normalized(x, spec).to(x.dtype)


def _rounded_last(x: torch.Tensor, weight: _Weight, _bias: _Weight, spec: NormSpec) -> torch.Tensor:
    assert weight is not None
    return (weight * _normalized(x, spec)).to(x.dtype)


def _gemma(x: torch.Tensor, weight: _Weight, _bias: _Weight, spec: NormSpec) -> torch.Tensor:
    assert weight is not None
    return (_normalized(x, spec) * (1.0 + weight.float())).to(x.dtype)


def _torch_layer(x: torch.Tensor, weight: _Weight, bias: _Weight, spec: NormSpec) -> torch.Tensor:
    assert spec.eps is not None
    return F.layer_norm(x, spec.shape, weight, bias, spec.eps)


# Equal but for where they round, and which of them torch computes in one kernel.
NORMS: dict[str, Callable[[torch.Tensor, _Weight, _Weight, NormSpec], torch.Tensor]] = {
    "rms_norm": _torch_rms,
    "layer_norm": _torch_layer,
    "llama_rms_norm": _llama,
    "rms_norm_rounded_last": _rounded_last,
    "gemma_rms_norm": _gemma,
}


@dataclass(frozen=True)
class NormSpec:
    """What a norm computes.

    Parameters
    ----------
    kind : str
        A key of `NORMS`.
    shape : tuple of int
        The last dimensions, over which it normalizes.
    eps : float or None
        None: that of fp32, in which torch computes.
    """

    kind: str
    shape: tuple[int, ...]
    eps: float | None

    @property
    def added(self) -> float:
        """The number that is added to a variance."""
        return torch.finfo(torch.float32).eps if self.eps is None else self.eps

    def compute(self, x: torch.Tensor, weight: _Weight, bias: _Weight) -> torch.Tensor:
        """Normalize."""
        return NORMS[self.kind](x, weight, bias, self)


class _Output(Method):
    def __init__(self, stored: Stored, spec: NormSpec) -> None:
        super().__init__()
        self.stored, self.spec = stored, spec

    def compute(self, *sources: Any) -> torch.Tensor:
        data, weight, bias = sources
        return self.spec.compute(self.stored.decode_early(data), weight, bias)


def norm(
    x: torch.Tensor, weight: _Weight, bias: _Weight, spec: NormSpec, fmt: Format, recompute: bool
) -> torch.Tensor:
    """Normalize, and save nothing but `x` in the format `fmt`.

    Parameters
    ----------
    x : torch.Tensor
        fp32, bf16 or fp16.
    weight, bias : torch.Tensor, optional
        Of the norm.
    spec : NormSpec
        What it computes.
    fmt : Format
        How the input is stored.
    recompute : bool
        Let the output carry its recipe.
    """
    # Written out, a norm of lower precision saves an fp32 copy.
    stored, data = store(x, fmt, spec.kind == "layer_norm" or x.dtype == torch.float32)
    method = _Output(stored, spec)
    output: torch.Tensor = _Norm.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, data, method
    )
    if not recompute:
        return output
    return attach(
        output,
        method,
        data,
        None if weight is None else weight.detach(),
        None if bias is None else bias.detach(),
    )


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, data: Any, method: _Output) -> Any:
        ctx.save_for_backward(data, weight)
        ctx.method, ctx.bias_type = method, None if bias is None else bias.dtype
        return method.spec.compute(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        data, weight = ctx.saved_tensors
        method: _Output = ctx.method
        method.forget()
        spec = method.spec
        stored = method.stored
        width = torch.Size(spec.shape).numel()
        x = stored.decode_last(data).reshape(-1, width).to(torch.float32)
        grad = grad.reshape(-1, width).to(torch.float32)
        centred = spec.kind == "layer_norm"
        if centred:
            x = x - x.mean(-1, keepdim=True)
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + spec.added)
        normal = x * rstd
        product = grad * normal
        grad_weight = grad_bias = grad_x = None
        if ctx.needs_input_grad[1]:
            grad_weight = product.sum(0).view(weight.shape).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum(0).view(spec.shape).to(ctx.bias_type)
        if ctx.needs_input_grad[0]:
            if weight is not None:
                scale = weight.reshape(-1).to(torch.float32)
                scale = scale + 1.0 if spec.kind == "gemma_rms_norm" else scale
                grad, product = grad * scale, product * scale
            grad_x = grad - normal * product.mean(-1, keepdim=True)
            if centred:
                grad_x = grad_x - grad.mean(-1, keepdim=True)
            grad_x = (grad_x * rstd).view(stored.shape).to(stored.dtype)
        return grad_x, grad_weight, grad_bias, None, None
