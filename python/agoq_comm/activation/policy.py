"""What is stored how: rules on the saved tensors of a model, the first that matches decides."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from agoq_comm.activation.formats import BITS, Format
from agoq_comm.activation.packed import QUANTIZABLE
from agoq_comm.activation.tensor_classes import TENSOR_CLASSES, classify

# A field of `Rule` is named type, which hides the builtin from the annotations beside it.
_Class: TypeAlias = "type[Any]"

KEEP = "keep"
# Under this, the bytes saved are less than those of the objects that tell of them.
_SMALLEST = 1024
# Activation functions whose gradient is computed from what they save, and jumps where a number that
# is not zero may be stored as zero, or one beyond a bound as one within it. ReLU6 is a Hardtanh.
_JUMPING = (
    "LeakyReLU", "PReLU", "RReLU", "SELU", "Hardtanh", "Hardsigmoid", "Hardswish", "Threshold",
    "Hardshrink", "Softshrink",
)  # fmt: skip
# Their gradients divide by what they made and save.
_DIVIDING = ("Sqrt*", "Rsqrt*", "Reciprocal*")


@dataclass(frozen=True)
class Site:
    """Where a tensor is saved, and what it is.

    Parameters
    ----------
    module : str
        Qualified name of the innermost module that is running; empty for the model itself.
    types : tuple of type
        Classes of the running modules, outermost first; none for what runs outside of the model.
    dtype : torch.dtype
        Of the tensor.
    shape : tuple of int
        Of the tensor.
    operation : str
        The one that computed it, by autograd's name, e.g. ``"LogSoftmax"``; ``"Leaf"`` if none
        did that autograd knows of. Empty where `wrap_` asks, which knows what a layer computes.
    """

    module: str
    types: tuple[type, ...]
    dtype: torch.dtype
    shape: tuple[int, ...]
    operation: str = ""

    @functools.cached_property
    def numel(self) -> int:
        """Elements of the tensor."""
        return torch.Size(self.shape).numel()

    @functools.cached_property
    def tensor_class(self) -> str:
        """What part the tensor plays; see `agoq_comm.activation.tensor_classes`."""
        return classify(self.module, self.types, self.operation)


@dataclass(frozen=True)
class Decision:
    """How one tensor is stored.

    Parameters
    ----------
    format : Format or None
        None: exactly as it is.
    reason : str
        Why, for a report.
    """

    format: Format | None
    reason: str


@dataclass(frozen=True)
class Rule:
    """A condition on saved tensors, and how those that meet all of it are stored.

    Parameters
    ----------
    format : str or Format
        A format, or ``"keep"``: exactly.
    module : str, optional
        Pattern of the qualified name of the innermost module: of the shell (``"*.mlp.*"``), or,
        after ``"re:"``, a regular expression that is searched for.
    type : type or str, optional
        Class of the innermost module, or a shell pattern of its name or of a base's.
    inside : type or str, optional
        The same for any of the running modules.
    tensor_class : str, optional
        One of `TENSOR_CLASSES`.
    operation : str, optional
        Shell pattern of the operation that computed the tensor, by autograd's name: ``"Relu"``.
        ``"?*"`` is any, and matches no tensor of a layer that `wrap_` replaces.
    dtype : torch.dtype or str, optional
        For example ``"bfloat16"``.
    min_numel : int
        Elements that the tensor has at least.
    max_row : int, optional
        Elements that its last dimension has at most: 1 finds the statistics of norms.
    reason : str
        Said in reports.
    """

    format: str | Format
    module: str | None = None
    type: _Class | str | None = None
    inside: _Class | str | None = None
    tensor_class: str | None = None
    operation: str | None = None
    dtype: torch.dtype | str | None = None
    min_numel: int = 0
    max_row: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        for name in ("min_numel", "max_row"):
            number = getattr(self, name)
            if number is not None and number < 0:
                raise ValueError(f"{name} is {number}; it is a number of elements, 0 or more")
        if self.format != KEEP:
            object.__setattr__(self, "format", Format.parse(self.format))
        if self.tensor_class not in (None, *TENSOR_CLASSES):
            raise ValueError(
                f"tensor_class is {self.tensor_class!r}; there are {', '.join(TENSOR_CLASSES)}"
            )
        if isinstance(self.dtype, str):
            dtype = getattr(torch, self.dtype.removeprefix("torch."), None)
            if not isinstance(dtype, torch.dtype):
                raise ValueError(f"dtype is {self.dtype!r}, which is none of torch's")
            object.__setattr__(self, "dtype", dtype)
        if self.module is not None and self.module.startswith("re:"):
            re.compile(self.module[3:])  # Raises here rather than in the middle of a step.

    def matches(self, site: Site) -> bool:
        """Tell whether the tensor meets the whole condition."""
        return (
            site.numel >= self.min_numel
            and self.dtype in (None, site.dtype)
            and (self.max_row is None or (site.shape[-1] if site.shape else 1) <= self.max_row)
            and self.tensor_class in (None, site.tensor_class)
            and (self.operation is None or fnmatch.fnmatchcase(site.operation, self.operation))
            and (self.module is None or _name_matches(self.module, site.module))
            and (self.type is None or any(_is_a(kind, self.type) for kind in site.types[-1:]))
            and (self.inside is None or any(_is_a(kind, self.inside) for kind in site.types))
        )

    def decision(self) -> Decision:
        """Return what the rule says of a tensor that it matches."""
        if isinstance(self.format, Format):
            return Decision(self.format, self.reason)
        return Decision(None, self.reason or f"kept by rule: {self._condition()}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, without the fields that are as by default."""
        result: dict[str, Any] = {"format": str(self.format)}
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if value != field.default:
                result[field.name] = _plain(value)
        return result

    def _condition(self) -> str:
        plain = self.to_dict()
        parts = [f"{name}={plain[name]}" for name in plain if name not in ("format", "reason")]
        return ", ".join(parts) or "all"


@dataclass(frozen=True)
class Policy:
    """Rules in the order in which they are asked, and what holds where none matches.

    Immutable; any thread may ask it. Tensors that are not fp32, bf16 or fp16 are always kept.

    Parameters
    ----------
    rules : sequence of Rule
        The first that matches decides.
    default : str or Format
        A format, or ``"keep"``.
    recompute : bool
        Layers that `agoq_comm.activation.wrap_` replaces recompute what follows from their
        quantized input: the inputs of the QKV and FFN projections are not stored. Hooks cannot
        recompute, and store those as the rules say.
    """

    rules: tuple[Rule, ...] = ()
    default: str | Format = KEEP
    recompute: bool = True

    def __init__(
        self,
        rules: Sequence[Rule] = (),
        default: str | Format = KEEP,
        recompute: bool = True,
    ) -> None:
        object.__setattr__(self, "rules", tuple(rules))
        object.__setattr__(self, "default", default if default == KEEP else Format.parse(default))
        object.__setattr__(self, "recompute", recompute)

    @classmethod
    def agoq(cls, fmt: str | Format = "fp4/128", norm: str | Format | None = None) -> Policy:
        """Attention, statistics and the loss exactly, norms in 6 bits, all else in 4 bits.

        Attention means Q, K, V and its output. The paper (AGoQ, arXiv 2605.00539) found that a
        model whose attention was stored in 4 bits as well did not converge. What ReLU made is
        exact too: its gradient is 1 where that is above 0, and small numbers become 0 in a code. So
        are other functions whose gradient jumps, and modules of which it is not known what they
        compute: a division by what was stored as 0 gives no gradient at all.

        Parameters
        ----------
        fmt : str or Format
            Of all that is not exact.
        norm : str or Format, optional
            Of the inputs of norms, from which the inputs of the QKV and FFN projections are
            computed again: by default E2M3 where `fmt` has fewer than 6 bits, else `fmt`.
            ``"fp4/128"`` is the paper's choice, from which a small model learns measurably less
            (docs/activation_training.md).
        """
        fmt = Format.parse(fmt)
        if norm is None:
            norm = dataclasses.replace(fmt, element="e2m3") if BITS[fmt.element] < 6 else fmt
        exact = (
            Rule(KEEP, tensor_class="attention", reason="attention is exact"),
            Rule(KEEP, operation="Relu*", reason="where it is 0, its gradient is 0"),
            *(Rule(KEEP, type=name, reason="its gradient jumps") for name in _JUMPING),
        )
        rest = (
            Rule(norm, tensor_class="norm", min_numel=_SMALLEST),
            Rule(fmt, min_numel=_SMALLEST),
        )
        return cls((*exact, *_exact_everywhere(), *rest))

    @classmethod
    def uniform(cls, fmt: str | Format = "fp4/128") -> Policy:
        """All layers alike, attention too: the control of `agoq`, which recomputes nothing."""
        return cls((*_exact_everywhere(), Rule(fmt, min_numel=_SMALLEST)), recompute=False)

    @classmethod
    def exact(cls) -> Policy:
        """Everything exactly: what the hooks measure then is the model as it is."""
        return cls(recompute=False)

    def decide(self, site: Site) -> Decision:
        """Say how a tensor is stored."""
        if site.dtype not in QUANTIZABLE:
            return Decision(None, f"{_plain(site.dtype)} is not quantized")
        for rule in self.rules:
            if rule.matches(site):
                return rule.decision()
        if isinstance(self.default, Format):
            return Decision(self.default, "")
        return Decision(None, "no rule matches")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, from which `from_dict` makes an equal policy.

        Classes become their names, which then match any class so named.
        """
        return {
            "rules": [rule.to_dict() for rule in self.rules],
            "default": str(self.default),
            "recompute": self.recompute,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Policy:
        """Make the policy that `to_dict` described."""
        unknown = set(values) - {"rules", "default", "recompute"}
        if unknown:
            raise ValueError(f"a policy has no {', '.join(sorted(unknown))}")
        return cls(
            [_rule(rule) for rule in values.get("rules", ())],
            values.get("default", KEEP),
            values.get("recompute", True),
        )


def _rule(values: Mapping[str, Any]) -> Rule:
    unknown = set(values) - {field.name for field in dataclasses.fields(Rule)}
    if unknown or "format" not in values:
        wrong = f"has no {', '.join(sorted(unknown))}" if unknown else "needs a format"
        raise ValueError(f"a rule {wrong}: {dict(values)}")
    return Rule(**values)


def _exact_everywhere() -> tuple[Rule, ...]:
    unknown = "of an unknown computation, whose gradient may divide by it"
    return (
        Rule(KEEP, tensor_class="loss", reason="the loss is exact"),
        Rule(KEEP, max_row=1, reason="one number a row: a statistic"),
        *(Rule(KEEP, operation=name, reason="its gradient divides by it") for name in _DIVIDING),
        Rule(KEEP, tensor_class="other", operation="?*", reason=unknown),
    )


def _name_matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        return re.search(pattern[3:], name) is not None
    return fnmatch.fnmatchcase(name, pattern)


def _is_a(kind: type, wanted: type | str) -> bool:
    if isinstance(wanted, str):
        return any(fnmatch.fnmatchcase(base.__name__, wanted) for base in kind.__mro__[:-1])
    return issubclass(kind, wanted)


def _plain(value: Any) -> Any:
    if isinstance(value, type):
        return value.__name__
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value
