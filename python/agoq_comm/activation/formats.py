"""Names of formats, and how many bytes they take; also for sizes that a compiler left open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Bits of a code. The core has the codes themselves; these give sizes to a compiler that traces.
BITS = {"fp4": 4, "int4": 4, "e2m3": 6, "int6": 6, "int8": 8}
_SCALE_BYTES = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class Format:
    """Element format, block length and scale type.

    Parameters
    ----------
    element : {"fp4", "e2m3", "int4", "int6", "int8"}
        How one code represents a number.
    block : int
        Elements that share a scale: a power of two in [32, 1024].
    scale : {"bf16", "fp32"}
        Type of the scale.
    """

    element: str = "fp4"
    block: int = 128
    scale: str = "bf16"

    def __post_init__(self) -> None:
        if self.element not in BITS:
            raise ValueError(f"format is {self.element!r}; there are {', '.join(BITS)}")
        if not 32 <= self.block <= 1024 or self.block & (self.block - 1):
            raise ValueError(f"block is {self.block}; it is a power of two in [32, 1024]")
        if self.scale not in _SCALE_BYTES:
            raise ValueError(f"scale is {self.scale!r}; there are {', '.join(_SCALE_BYTES)}")

    @classmethod
    def parse(cls, name: str | Format) -> Format:
        """Read ``"fp4"``, ``"fp4/128"`` or ``"fp4/128/bf16"``."""
        if isinstance(name, Format):
            return name
        parts = name.split("/")
        if len(parts) > 3 or (len(parts) > 1 and not parts[1].isdecimal()):
            raise ValueError(f"format is {name!r}; write element/block/scale, as in 'fp4/128/bf16'")
        return cls(
            parts[0],
            int(parts[1]) if len(parts) > 1 else cls.block,
            parts[2] if len(parts) > 2 else cls.scale,
        )

    def __str__(self) -> str:
        short = f"{self.element}/{self.block}"
        return short if self.scale == "bf16" else f"{short}/{self.scale}"

    @property
    def bits_per_element(self) -> float:
        """Bits of a code and its part of a scale."""
        return BITS[self.element] + 8 * _SCALE_BYTES[self.scale] / self.block

    def scale_bytes(self, numel: Any) -> Any:
        """Bytes of the scales of `numel` elements; an int, or a symbol for a symbol."""
        return (numel + self.block - 1) // self.block * _SCALE_BYTES[self.scale]

    def encoded_bytes(self, numel: Any) -> Any:
        """Bytes of `numel` elements: codes, zeros that align the scales, scales."""
        align = _SCALE_BYTES[self.scale]
        codes = (numel * BITS[self.element] + 7) // 8
        return (codes + align - 1) // align * align + self.scale_bytes(numel)
