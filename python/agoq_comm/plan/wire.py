"""How a buffer is cut into chunks, and how many bytes encoded elements take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Format", "balanced_chunks"]

_SCALE_BYTES = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class Format:
    """A block format, as `agoq_comm.Options` has it.

    Parameters
    ----------
    bits : int
        Of an element's code.
    block : int
        Elements that share a scale.
    scale : str
        ``"bf16"`` or ``"fp32"``.
    """

    bits: int = 8
    block: int = 128
    scale: str = "bf16"

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8 or self.block < 1 or self.block * self.bits % 8:
            raise ValueError(
                f"plan: a format has 1 to 8 bits and blocks of whole bytes, not {self.bits} bits "
                f"in blocks of {self.block}"
            )
        if self.scale not in _SCALE_BYTES:
            raise ValueError(f"plan: scale is {self.scale!r}; it is bf16 or fp32")

    @property
    def bytes_per_element(self) -> float:
        """Of whole blocks."""
        return self.bits / 8 + _SCALE_BYTES[self.scale] / self.block

    def encoded_bytes(self, count: int) -> int:
        """Return what `count` elements take: codes, alignment of the scales, scales."""
        whole, rest = divmod(count, self.block)
        scale = _SCALE_BYTES[self.scale]
        codes = whole * (self.block * self.bits // 8) + -(-rest * self.bits // 8)
        return -(-codes // scale) * scale + (whole + (rest > 0)) * scale


def balanced_chunks(count: int, ranks: int, block: int) -> list[int]:
    """Return the elements of each rank's chunk: whole blocks, but for the end of the buffer."""
    blocks = -(-count // block)
    chunks = []
    for rank in range(ranks):
        share = blocks // ranks + (rank < blocks % ranks)
        chunks.append(min(share * block, count))
        count -= chunks[-1]
    return chunks
