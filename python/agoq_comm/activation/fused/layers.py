"""Classes that are mixed into those of a model's modules, so that they call the fused functions.

A module keeps its parameters, its hooks and its name; where nothing is to be saved, its own forward
runs. What its class now derives from is its own class, so that it still is what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from agoq_comm.activation.formats import Format
from agoq_comm.activation.fused import attention, mlp, norm
from agoq_comm.activation.fused.dropout import dropout
from agoq_comm.activation.fused.linear import linear
from agoq_comm.activation.fused.recipe import AsItIs, Recipe, attach, recipe_of, store
from agoq_comm.activation.packed import QUANTIZABLE
from agoq_comm.activation.policy import Policy, Site

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class Formats:
    """What a policy says of the tensors that one module saves, laid out for a compiler to follow.

    Parameters
    ----------
    policy : Policy
        Whose rules are asked, here and not later.
    name : str
        Of the module.
    types : tuple of type
        Its class, after those around it.
    row : int, optional
        Length of the tensors' last dimension, where it is known.
    """

    def __init__(
        self, policy: Policy, name: str, types: tuple[type, ...], row: int | None = None
    ) -> None:
        self.recompute = policy.recompute
        self._table: dict[torch.dtype, list[tuple[int, Format | None]]] = {}
        sizes = sorted({1, *(rule.min_numel for rule in policy.rules)}, reverse=True)
        for dtype in QUANTIZABLE:
            lines: list[tuple[int, Format | None]] = []
            for size in sizes:
                # A tensor is whole rows: of `size` elements or more, so it has this shape or more.
                shape = (size,) if row is None else (-(-size // row), row)
                site = Site(name, types, dtype, shape)
                lines.append((site.numel, policy.decide(site).format))
            self._table[dtype] = lines

    def __call__(self, x: torch.Tensor) -> Format | None:
        """Return the format of a tensor, None if it is kept exactly."""
        if x.layout is not torch.strided:
            return None
        for least, format in self._table.get(x.dtype, ()):
            if x.numel() >= least:
                return format
        return None

    def quantizes(self) -> bool:
        """Tell whether there is a tensor that is not kept exactly."""
        return any(format for lines in self._table.values() for _, format in lines)


class FusedLayer:
    """What all of these classes are."""

    agoq_original: ClassVar[type]
    _agoq: Any

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle and copy by the class that it had: this one is made anew."""
        return _restore, (_mixin_of(type(self)), self.agoq_original), self.__dict__


_classes: dict[tuple[Any, Any], Any] = {}


def fused_class(mixin: type[FusedLayer], original: type) -> Any:
    """Derive a module's class from the one that it has and from one of the classes below."""
    kind = _classes.get((mixin, original))
    if kind is None:
        namespace = {"agoq_original": original, "__module__": original.__module__}
        kind = type(f"Fused{original.__name__}", (mixin, original), namespace)
        _classes[mixin, original] = kind
    return kind


def _mixin_of(kind: type) -> type[FusedLayer]:
    return next(base for base in kind.__mro__[1:] if base in MIXINS)


def _restore(mixin: type[FusedLayer], original: type) -> Any:
    kind = fused_class(mixin, original)
    return kind.__new__(kind)


def _only(inputs: tuple[Any, ...], options: dict[str, Any]) -> torch.Tensor | None:
    """Return the tensor that a layer was called with, if that is all, and saves something."""
    if len(inputs) + len(options) != 1 or not torch.is_grad_enabled():
        return None
    x = inputs[0] if inputs else next(iter(options.values()))
    return x if type(x) in (torch.Tensor, nn.Parameter) else None


class FusedLinear(FusedLayer):
    """A linear layer: its input is not saved where it can be computed again."""

    _agoq: Formats
    in_first: ClassVar[bool] = False
    weight: torch.Tensor
    bias: torch.Tensor | None

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Apply the layer."""
        x = _only(inputs, options)
        fmt = self._agoq(x) if x is not None and self.weight.requires_grad else None
        if x is None or fmt is None:
            return super().forward(*inputs, **options)  # type: ignore[misc]
        recipe = found = recipe_of(x)
        if recipe is None or recipe.method.stored_as not in (None, fmt):
            stored, data = store(x, fmt)
            recipe = Recipe(AsItIs(stored), (data,))
            if found is None and not x.is_leaf and not torch.compiler.is_compiling():
                attach(x, recipe.method, data)  # For the other layers that read it.
        return linear(x, self.weight, self.bias, recipe, self.in_first)


class FusedConv1d(FusedLinear):
    """Hugging Face's Conv1D, a linear layer with its weight the other way round."""

    in_first = True


class NormSettings(NamedTuple):
    """What a norm computes, and how its input is stored."""

    spec: norm.NormSpec
    formats: Formats


class FusedNorm(FusedLayer):
    """A norm that saves its quantized input."""

    _agoq: NormSettings
    weight: torch.Tensor | None

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Normalize."""
        x = _only(inputs, options)
        spec, formats = self._agoq
        weight, bias = self.weight, getattr(self, "bias", None)
        fmt = None if x is None else formats(x)
        needed = any(t is not None and t.requires_grad for t in (x, weight, bias))
        if x is None or fmt is None or not needed:
            return super().forward(*inputs, **options)  # type: ignore[misc]
        return norm.norm(x, weight, bias, spec, fmt, formats.recompute)


class ActivationSettings(NamedTuple):
    """Which function it is, and how its input is stored."""

    kind: str
    formats: Formats


class FusedActivation(FusedLayer):
    """An activation function that saves its quantized input."""

    _agoq: ActivationSettings

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Apply the function."""
        x = _only(inputs, options)
        kind, formats = self._agoq
        fmt = formats(x) if x is not None and x.requires_grad else None
        if x is None or fmt is None:
            return super().forward(*inputs, **options)  # type: ignore[misc]
        return mlp.activation(x, kind, fmt, formats.recompute)


class FusedDropout(FusedLayer):
    """Dropout that saves a bit for each element."""

    _agoq: None
    p: float
    training: bool

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Drop elements."""
        x = _only(inputs, options)
        used = x is not None and x.requires_grad and self.training and 0.0 < self.p < 1.0
        if x is None or not used:
            return super().forward(*inputs, **options)  # type: ignore[misc]
        return dropout(x, self.p, recipe_of(x))


@dataclass(frozen=True)
class MlpForm:
    """What the forward of an MLP computes, with the names of its modules.

    Parameters
    ----------
    kind : str
        The activation function, a key of `mlp.ACTIVATIONS`.
    first : tuple of str
        The layer before the function, or the gate's and the other one, or the one for both.
    last : str
        The layer after it.
    gate : int or None
        Which half is the gate's where one layer computes both; None where none does.
    activation : str, optional
        The module of the function, if it is one.
    inner_dropout, outer_dropout : str, optional
        The dropout before the last layer, and that after it.
    """

    kind: str
    first: tuple[str, ...]
    last: str
    gate: int | None = None
    activation: str | None = None
    inner_dropout: str | None = None
    outer_dropout: str | None = None

    def run(self, module: Any, x: torch.Tensor, formats: Formats | None = None) -> torch.Tensor:
        """Compute the MLP: what lies between the linear layers fused if there are formats."""
        parts = [getattr(module, name)(x) for name in self.first]
        if self.gate is not None:
            halves = parts[0].chunk(2, -1)
            parts = [halves[self.gate], halves[1 - self.gate]]
        fmt = None
        if formats is not None and any(part.requires_grad for part in parts):
            fmt = formats(parts[0])
        hidden = self._exactly(parts) if fmt is None else self._fused(parts, fmt, formats)
        if self.inner_dropout:
            hidden = getattr(module, self.inner_dropout)(hidden)
        output: torch.Tensor = getattr(module, self.last)(hidden)
        if self.outer_dropout:
            output = getattr(module, self.outer_dropout)(output)
        return output

    def _exactly(self, parts: list[torch.Tensor]) -> torch.Tensor:
        hidden = mlp.ACTIVATIONS[self.kind].forward(parts[0])
        return hidden if len(parts) == 1 else hidden * parts[1]

    def _fused(
        self, parts: list[torch.Tensor], fmt: Format, formats: Formats | None
    ) -> torch.Tensor:
        recompute = formats is not None and formats.recompute
        if len(parts) == 1:
            return mlp.activation(parts[0], self.kind, fmt, recompute)
        return mlp.gated(parts[0], parts[1], self.kind, fmt, recompute)


class MlpSettings(NamedTuple):
    """What an MLP computes, and how what is between its linear layers is stored."""

    form: MlpForm
    formats: Formats


class FusedMlp(FusedLayer):
    """An MLP that saves the quantized inputs of its activation function."""

    _agoq: MlpSettings
    #: What follows the running modules need not look inside.
    runs_as_one = True

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Apply the MLP."""
        x = _only(inputs, options)
        form, formats = self._agoq
        # A hook on the function's own module wants to see it called.
        if x is None or (form.activation and _has_hooks(getattr(self, form.activation))):
            return super().forward(*inputs, **options)  # type: ignore[misc]
        return form.run(self, x, formats)


class FusedAttention(FusedLayer):
    """Attention that holds Q, K and V exactly, and nothing that is only their neighbour."""

    _agoq: None

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Attend."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().forward(*inputs, **options)  # type: ignore[misc]
        with attention.OwnMemory():
            return super().forward(*inputs, **options)  # type: ignore[misc]


MIXINS = (
    FusedLinear,
    FusedConv1d,
    FusedNorm,
    FusedActivation,
    FusedDropout,
    FusedMlp,
    FusedAttention,
)


def _has_hooks(module: nn.Module) -> bool:
    anywhere: bool = torch_module._has_any_global_hook()  # type: ignore[no-untyped-call]
    return anywhere or any(getattr(module, name) for name in HOOKS)
