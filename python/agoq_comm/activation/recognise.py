"""Which modules of a model can be replaced, and by what; and which cannot, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn

from agoq_comm.activation.fused.layers import (
    ActivationSettings,
    Formats,
    FusedActivation,
    FusedAttention,
    FusedConv1d,
    FusedDropout,
    FusedLayer,
    FusedLinear,
    FusedMlp,
    FusedNorm,
    MlpSettings,
    NormSettings,
)
from agoq_comm.activation.policy import Policy, Site
from agoq_comm.activation.recognise_mlp import (
    CONTAINERS,
    activation_of,
    is_conv1d,
    linear_sizes,
    mlp_of,
)
from agoq_comm.activation.recognise_norm import norm_of

# They save next to nothing, or store what they save encoded themselves.
_LEFT_ALONE = {
    "Identity", "Flatten", "Unflatten", "Softmax",
    "ColumnParallelLinear", "RowParallelLinear", "VocabParallelEmbedding",
}  # fmt: skip
# Large enough for any rule about sizes.
_LARGE = (1 << 40, 1 << 10)


class NotRecognised(ValueError):  # noqa: N818 - it says what happened
    """A model has modules that cannot be replaced, and that the policy does not keep.

    Attributes
    ----------
    modules : list of (str, str)
        Name of each, and why it was not recognised.
    """

    def __init__(self, modules: list[tuple[str, str]]) -> None:
        self.modules = modules
        lines = "\n".join(f"  {name or '(the model)'}: {reason}" for name, reason in modules)
        super().__init__(
            f"{len(modules)} module(s) were not recognised, and nothing was changed:\n{lines}\n"
            "To leave one as it is, let the policy's first rule keep it: "
            f"Rule('keep', module={modules[0][0]!r}). What it saves can still be stored by "
            "compress()."
        )


class Replacement(NamedTuple):
    """A module, the class that is mixed into its own, and what that needs to know."""

    name: str
    module: nn.Module
    mixin: type[FusedLayer]
    settings: Any
    description: str


def recognise(model: nn.Module, policy: Policy) -> list[Replacement]:
    """Find what of a model can be replaced.

    Raises
    ------
    NotRecognised
        There is something else in it that saves activations, as far as one can see.
    """
    search = _Search(policy)
    search.visit("", model, ())
    if search.unknown:
        raise NotRecognised(search.unknown)
    # What the others store exactly follows the policy only in so far as it stores anything.
    if all(replacement.settings is None for replacement in search.found):
        return []
    return search.found


class _Search:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: set[nn.Module] = set()
        self._mlps: set[nn.Module] = set()
        self.found: list[Replacement] = []
        self.unknown: list[tuple[str, str]] = []

    def visit(self, name: str, module: nn.Module, around: tuple[type, ...]) -> None:
        if module in self._seen:
            return
        self._seen.add(module)
        kind = type(module)
        if isinstance(module, FusedLayer):
            raise ValueError(f"module {name!r} was replaced before; call unwrap_ first")
        if kind.__name__ in _LEFT_ALONE or isinstance(module, nn.Embedding | nn.EmbeddingBag):
            return
        types = (*around, kind)
        if not self._recognised(name, module, types) and not list(module.children()):
            self._leaf(name, module, types)
        for child_name, child in module.named_children():
            # A fused MLP calls no module for its activation function.
            if module not in self._mlps or activation_of(child) is None:
                self.visit(f"{name}.{child_name}" if name else child_name, child, types)

    def _recognised(self, name: str, module: nn.Module, types: tuple[type, ...]) -> bool:
        """Note what a module is, or why that is not known; False if there is nothing to say."""
        if isinstance(module, nn.Linear):
            if type(module).forward is not nn.Linear.forward:
                self._unknown(name, module, types, "its forward is not that of nn.Linear")
                return True
            formats = Formats(self._policy, name, types, module.in_features)
            self._add(name, module, FusedLinear, formats, formats, "linear")
            return True
        if is_conv1d(module):
            formats = Formats(self._policy, name, types, int(module.nx))  # type: ignore[arg-type]
            self._add(name, module, FusedConv1d, formats, formats, "Conv1D")
            return True
        if type(module) is nn.Dropout:
            if not module.inplace:
                self.found.append(Replacement(name, module, FusedDropout, None, "dropout"))
            return True
        spec = norm_of(module)
        if isinstance(spec, str):
            self._unknown(name, module, types, spec)
        elif spec is not None:
            formats = Formats(self._policy, name, types, spec.shape[-1])
            self._add(name, module, FusedNorm, NormSettings(spec, formats), formats, spec.kind)
        if spec is not None:
            return True
        act = activation_of(module)
        if isinstance(act, tuple) and not act[1]:
            act = "it works in place, and so leaves no input to keep; let it be made without"
        if isinstance(act, str):
            self._unknown(name, module, types, act)
        elif act is not None:
            formats = Formats(self._policy, name, types)
            settings = ActivationSettings(act[0], formats)
            self._add(name, module, FusedActivation, settings, formats, act[0])
        return act is not None or self._composed(name, module, types)

    def _composed(self, name: str, module: nn.Module, types: tuple[type, ...]) -> bool:
        form = mlp_of(module)
        if isinstance(form, str):
            self._unknown(name, module, types, form)
        elif form is not None:
            formats = Formats(self._policy, name, types)
            gated = "gated " if form.gate is not None or len(form.first) == 2 else ""
            mlp = MlpSettings(form, formats)
            if self._add(name, module, FusedMlp, mlp, formats, f"{gated}{form.kind} MLP"):
                self._mlps.add(module)
        elif not isinstance(module, CONTAINERS) and 2 <= _linears(module) <= 3:
            # If it is attention, one layer projects to several of Q, K and V: views of its output.
            self.found.append(Replacement(name, module, FusedAttention, None, "attention"))
        if isinstance(module, nn.MultiheadAttention):
            reason = "it computes its projections in one function with attention"
            self._unknown(name, module, types, reason)
        elif any(p.dim() > 1 for p in module.parameters(recurse=False)) and any(
            activation_of(child) for child in module.children()
        ):
            reason = "it computes with weights of its own, before or after an activation function"
            self._unknown(name, module, types, reason)
        return form is not None

    def _leaf(self, name: str, module: nn.Module, types: tuple[type, ...]) -> None:
        if next(module.parameters(), None) is not None:
            self._unknown(name, module, types, f"there is no fused {type(module).__name__}")

    def _add(
        self,
        name: str,
        module: nn.Module,
        mixin: type[FusedLayer],
        settings: Any,
        formats: Formats,
        description: str,
    ) -> bool:
        if formats.quantizes():
            self.found.append(Replacement(name, module, mixin, settings, description))
        return formats.quantizes()

    def _unknown(self, name: str, module: nn.Module, types: tuple[type, ...], reason: str) -> None:
        dtype = next((p.dtype for p in module.parameters()), torch.float32)
        if self._policy.decide(Site(name, types, dtype, _LARGE)).format is not None:
            self.unknown.append((name, f"{type(module).__name__}: {reason}"))


def _linears(module: nn.Module) -> int:
    return sum(linear_sizes(child) is not None for child in module.children())
