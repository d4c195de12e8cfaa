"""What the programs share: reproducible data, and the oracle in the terms of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import oracle

LARGE = 50_003  # Elements of a call that is quantized: above min_numel, no multiple of a block.


def data(rank: int, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Rank's normal numbers; any rank can make any other rank's."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randn(shape or (LARGE,), generator=generator).to(dtype)


def _array(x: torch.Tensor) -> np.ndarray:
    return x.float().flatten().numpy()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def quantized_all_reduce(
    inputs: Sequence[torch.Tensor], op: str = "sum", factor: float = 1.0, element: str = "int8"
) -> torch.Tensor:
    """What a quantized all_reduce of `inputs`, one a rank, must give, bit for bit."""
    like = inputs[0]
    result = oracle.all_reduce(
        [_array(x) for x in inputs], _name(like.dtype), op, factor, element=element
    )
    return torch.from_numpy(result).to(like.dtype).view(like.shape)


def quantized_reduce_scatter(
    inputs: Sequence[Sequence[torch.Tensor]], op: str = "sum", factor: float = 1.0
) -> list[torch.Tensor]:
    """What a quantized reduce_scatter of inputs[rank][owner] must give each owner."""
    likes = inputs[0]
    results = oracle.reduce_scatter(
        [[_array(x) for x in row] for row in inputs], _name(likes[0].dtype), op, factor
    )
    return [
        torch.from_numpy(result).to(like.dtype).view(like.shape)
        for result, like in zip(results, likes, strict=True)
    ]


def roundtrip(x: torch.Tensor) -> torch.Tensor:
    """`x` encoded and decoded."""
    return torch.from_numpy(oracle.roundtrip(_array(x))).to(x.dtype).view(x.shape)


def premul_sum(factor: float) -> Any:
    """Make the operation, which torch 2.11 has no public name for."""
    if callable(dist.ReduceOp.PREMUL_SUM):
        return dist.ReduceOp.PREMUL_SUM(factor)
    return dist._make_nccl_premul_sum(factor)


_REFUSALS = (ValueError, RuntimeError, TypeError)


@contextmanager
def refused(
    words: str, kinds: type[Exception] | tuple[type[Exception], ...] = _REFUSALS
) -> Iterator[None]:
    """Check that what is asked for inside is refused, in these words."""
    try:
        yield
    except kinds as error:
        assert words in str(error).replace("\n", " "), error
    else:
        raise AssertionError(f"nothing said {words!r}")


def equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert equality, bit for bit, with the first difference in the message."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, (actual, expected)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
