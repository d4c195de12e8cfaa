"""What the collectives of sequence parallelism must give, from the oracle.

Rows filled up with zeros to whole blocks are rows with a short last block.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from programs.common import quantized_reduce_scatter
from programs.common import roundtrip as flat_roundtrip

BLOCK = 128


def _padded(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, -x.shape[-1] % BLOCK))


def roundtrip(x: torch.Tensor) -> torch.Tensor:
    """`x` encoded and decoded, row by row."""
    return flat_roundtrip(_padded(x))[..., : x.shape[-1]].contiguous()


def gathered(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """All ranks' parts, each encoded."""
    return torch.cat([roundtrip(part) for part in parts])


def reduce_scattered(inputs: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
    """Each rank's part of the sum over `inputs`."""
    pieces = [_padded(x).split(list(sizes)) for x in inputs]
    return [
        part[..., : inputs[0].shape[-1]].contiguous() for part in quantized_reduce_scatter(pieces)
    ]


def exact_sum(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum in fp32 and in rank order, rounded once."""
    total = inputs[0].float()
    for x in inputs[1:]:
        total = total + x.float()
    return total.to(inputs[0].dtype)
