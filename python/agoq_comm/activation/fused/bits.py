"""Booleans, eight in a byte."""

from __future__ import annotations

import torch
import torch.nn.functional as F

# A byte's bits, the lowest first.
_BITS = (1, 2, 4, 8, 16, 32, 64, 128)


def pack_bits(mask: torch.Tensor) -> torch.Tensor:
    """Store eight booleans in a byte; the last byte is filled with zeros."""
    flat = F.pad(mask.reshape(-1), (0, -mask.numel() % 8)).view(-1, 8)
    weights = torch.tensor(_BITS, dtype=torch.uint8, device=mask.device)
    return (flat * weights).sum(-1, dtype=torch.uint8)


def unpack_bits(bits: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Return the booleans that `pack_bits` stored."""
    weights = torch.tensor(_BITS, dtype=torch.uint8, device=bits.device)
    return (bits.unsqueeze(-1) & weights).ne(0).view(-1)[: shape.numel()].view(shape)
