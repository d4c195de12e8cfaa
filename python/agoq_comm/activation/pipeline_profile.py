"""What a model chunk keeps for one microbatch, by tensor class: sizes, and what narrowing costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agoq_comm.activation.accounting import Record
from agoq_comm.activation.formats import Format
from agoq_comm.activation.policy import KEEP

#: Relative RMS error of normally distributed values in blocks of 128 (docs/numerics.md).
RELATIVE_ERROR: Mapping[str, float] = {
    "fp4": 0.109,
    "int4": 0.117,
    "e2m3": 0.0265,
    "int6": 0.0265,
    "int8": 0.0065,
    KEEP: 0.0,
}
#: Errors of gradients that the paper found with each class in fp4 (AGoQ, arXiv 2605.00539). A norm
#: counts as a linear layer: wrapped layers compute the inputs of projections from its own.
SENSITIVITIES: Mapping[str, float] = {
    "norm": 0.026,
    "linear": 0.026,
    "mlp": 0.051,
    "attention": 0.15,
}
# For activations fp4 and e2m3 are better than the integers of their size.
_WIDER = {"fp4": "e2m3", "int4": "e2m3", "e2m3": "int8", "int6": "int8", "int8": KEEP}


def element_of(format: str) -> str:
    """Return the element format: ``"fp4"`` of ``"fp4/128"``, ``"keep"`` of itself."""
    return format if format == KEEP else Format.parse(format).element


def wider(format: str) -> str | None:
    """Return the next wider format with the same blocks; None after keep."""
    if format == KEEP:
        return None
    element = _WIDER[element_of(format)]
    return KEEP if element == KEEP else str(replace(Format.parse(format), element=element))


@dataclass(frozen=True)
class TensorClass:
    """Tensors of a chunk that are stored alike.

    Parameters
    ----------
    name : str
        The `tensor_class` of the policy's rules and of the report's records. Tensors of one name
        that have different formats are several classes.
    numels : tuple of int
        Elements of each tensor.
    itemsize : int
        Bytes of an element without quantization.
    format : str
        The narrowest that it may have, which is what the policy gives it: ``"fp4/128"``, or
        ``"exact"``, which leaves nothing to choose.
    sensitivity : float
        Error of the gradient, relative to its norm, that storing the class in `format` adds.
    """

    name: str
    numels: tuple[int, ...]
    itemsize: int
    format: str
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        element_of(self.format)
        if not self.sensitivity >= 0:
            raise ValueError(
                f"profile: {self.name} has sensitivity {self.sensitivity}; it must be 0 or more"
            )

    def stored_bytes(self, format: str) -> int:
        """Return the bytes of all its tensors in a format, with scales."""
        if format == KEEP:
            return sum(self.numels) * self.itemsize
        parsed = Format.parse(format)
        return sum(parsed.encoded_bytes(numel) for numel in self.numels)

    def error(self, format: str) -> float:
        """Return what storing it in a format adds to the gradient's relative error."""
        if self.format == KEEP:
            return 0.0
        narrowest = RELATIVE_ERROR[element_of(self.format)]
        return self.sensitivity * RELATIVE_ERROR[element_of(format)] / narrowest


@dataclass(frozen=True)
class Profile:
    """All that a chunk keeps for one microbatch; of unequal chunks, the largest."""

    classes: tuple[TensorClass, ...]

    def __post_init__(self) -> None:
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("profile: a class is listed twice; put its tensors into one")

    @classmethod
    def of(
        cls,
        records: Iterable[Record],
        sensitivities: Mapping[str, float] = SENSITIVITIES,
        kept_bytes: int = 0,
    ) -> Profile:
        """Make the profile of what one forward pass of a chunk saved.

        Parameters
        ----------
        records : iterable of Record
            Of a `Report`, or of the accounting of `compress`, for one microbatch.
        sensitivities : mapping
            Error of the gradient, relative to its norm, that storing a tensor class in fp4 adds,
            whatever its format is: a wider one is taken to add less in proportion to its own
            error, `RELATIVE_ERROR`. Of a class that is not in it, 1: it goes first.
        kept_bytes : int
            What is held besides, such as the inputs and outputs that a pipeline's runtime keeps.
        """
        numels: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for record in records:
            if record.deduplicated or record.stored_bytes == 0:
                continue
            if record.format is None:
                kept_bytes += record.stored_bytes
            else:
                itemsize = record.dtype.itemsize
                key = (record.tensor_class, record.format, itemsize)
                numels[key].append(record.original_bytes // itemsize)
        classes = []
        for (name, format, itemsize), sizes in numels.items():
            of_fp4 = RELATIVE_ERROR[element_of(format)] / RELATIVE_ERROR["fp4"]
            sensitivity = sensitivities.get(name, 1.0) * of_fp4
            classes.append(TensorClass(name, tuple(sizes), itemsize, format, sensitivity))
        return cls((*classes, TensorClass("kept", (kept_bytes,), 1, KEEP)))

    def formats(self) -> dict[TensorClass, str]:
        """Return the narrowest format of each class."""
        return {kept: kept.format for kept in self.classes}

    def stored_bytes(self, formats: Mapping[TensorClass, str]) -> int:
        """Return the bytes that a chunk keeps for one microbatch with these formats."""
        return sum(kept.stored_bytes(formats[kept]) for kept in self.classes)
