"""Which modules are norms, and of which kind."""

from __future__ import annotations

import torch
from torch import nn

from agoq_comm.activation.fused.norm import NORMS, NormSpec
from agoq_comm.activation.recognise_probe import Calls, laboratory, own_forward, replaced, same

# Types of the input and of the weight: in lower precision kinds differ by where they round.
_PROBES = (
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.bfloat16, torch.float32),
)


def norm_of(module: nn.Module) -> NormSpec | str | None:
    """Say what norm it is, or why it is none that is known; None if it looks like none."""
    if isinstance(module, nn.LayerNorm) and type(module).forward is nn.LayerNorm.forward:
        return NormSpec("layer_norm", tuple(module.normalized_shape), module.eps)
    if isinstance(module, nn.RMSNorm) and type(module).forward is nn.RMSNorm.forward:
        return NormSpec("rms_norm", tuple(module.normalized_shape), module.eps)
    if "Norm" not in type(module).__name__:
        return None
    if isinstance(module, nn.modules.batchnorm._NormBase | nn.GroupNorm):
        return "only norms over the last dimensions are known"
    parameters = {name: p for name, p in module._parameters.items() if p is not None}
    weight = parameters.get("weight")
    if weight is None or weight.dim() != 1 or set(parameters) - {"weight", "bias"}:
        return "it has other parameters than a weight, and perhaps a bias, of one dimension"
    if next(module.children(), None) is not None:
        return "it has modules of its own"
    try:
        return _probe(module, weight.numel(), "bias" in parameters)
    except Exception as error:
        return f"calling it with one tensor failed: {type(error).__name__}: {error}"


def _probe(module: nn.Module, width: int, has_bias: bool) -> NormSpec | str:
    kinds = [NormSpec(kind, (width,), eps) for kind in NORMS for eps in _numbers_of(module, kind)]
    unlike: dict[NormSpec, int] = {}
    with laboratory():
        # Where rows are small, it shows what is added to the variance.
        rows = torch.randn(4, width) * torch.tensor([[3.0], [1.0], [1e-2], [1e-3]])
        weight, bias = torch.randn(width), torch.randn(width)
        for x_type, weight_type in _PROBES:
            x, w = rows.to(x_type), weight.to(weight_type)
            b = bias.to(weight_type) if has_bias else None
            own = {"weight": w} if b is None else {"weight": w, "bias": b}
            with replaced(module, parameters=own), Calls() as calls:
                output = own_forward(module, x)
            for spec in kinds.copy():
                with Calls() as others:
                    if not _computes(spec, x, w, b, output):
                        kinds.remove(spec)
                unlike[spec] = calls.unlike(others)
    if kinds:
        return min(kinds, key=lambda spec: unlike[spec])
    return f"its output is that of none of {', '.join(NORMS)}, to the bit"


def _numbers_of(module: nn.Module, kind: str) -> list[float | None]:
    numbers: list[float | None] = [
        value
        for name, value in vars(module).items()
        if isinstance(value, float) and "eps" in name.lower()
    ]
    return [*numbers, None] if kind == "rms_norm" else numbers


def _computes(
    spec: NormSpec, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None, output: object
) -> bool:
    if b is not None and spec.kind != "layer_norm":
        return False
    try:
        return same(output, spec.compute(x, w, b))
    except RuntimeError:  # A kernel of torch's that does not mix these types: not that one, then.
        return False
