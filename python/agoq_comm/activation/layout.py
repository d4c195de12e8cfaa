"""How a tensor lies in its memory, so that what is stored once serves all views of it alike.

Codes are taken in the order of the memory wherever the elements fill it without gaps: a transposed
tensor is not copied first, a flattened one and its original are one content, and what comes back
has the strides that were saved. Elements that an expanded tensor repeats are stored once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Layout:
    """Shape and strides of a tensor, and what of it is distinct.

    Parameters
    ----------
    shape, stride : tuple of int
        Of the tensor.
    distinct : tuple of int
        Its shape without the dimensions that only repeat.
    dense : bool
        The distinct elements fill a piece of memory.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    distinct: torch.Size
    dense: bool

    @classmethod
    def of(cls, x: torch.Tensor) -> Layout:
        """Describe a strided tensor that has elements."""
        shape, stride = x.shape, x.stride()
        if x.is_contiguous():
            return cls(shape, stride, shape, True)
        distinct = torch.Size(
            1 if step == 0 else size for size, step in zip(shape, stride, strict=True)
        )
        expected, dense = 1, True
        for step, size in sorted(
            (step, size) for size, step in zip(distinct, stride, strict=True) if size > 1
        ):
            dense = dense and step == expected
            expected *= size
        return cls(shape, stride, distinct, dense)

    @property
    def numel(self) -> int:
        """Distinct elements."""
        return self.distinct.numel()

    def key(self, x: torch.Tensor) -> tuple[Any, ...]:
        """Identify the elements within the storage of `x`, which lies like this."""
        place = (self.numel,) if self.dense else (self.distinct, self.stride)
        return (x.dtype, x.storage_offset(), *place)

    def take(self, x: torch.Tensor) -> torch.Tensor:
        """View the distinct elements of `x`, which lies like this, as `put` wants them back."""
        if self.dense:
            return x.as_strided((self.numel,), (1,))
        return x.as_strided(self.distinct, self.stride)

    def put(self, elements: torch.Tensor) -> torch.Tensor:
        """Make the tensor of contiguous elements in the order of `take`."""
        if self.dense:
            return elements.as_strided(self.shape, self.stride)
        return elements.view(self.distinct).expand(self.shape)
