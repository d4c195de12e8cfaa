"""Hypothesis strategies: numbers as gradients have them, and as they should not be."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

blocks = st.sampled_from([32, 64, 128, 256, 512, 1024])
scales = st.sampled_from(["bf16", "fp32"])
elements = st.sampled_from(["int8", "fp4", "e2m3", "int4", "int6"])
dtypes = st.sampled_from(sorted(DTYPES))
seeds = st.integers(0, 2**32 - 1)


def _every_exponent(rng: np.random.Generator, count: int) -> np.ndarray:
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(rng.standard_normal(count), rng.integers(-150, 127, count))


def _exponent_by_block(rng: np.random.Generator, count: int) -> np.ndarray:
    exponents = np.repeat(rng.integers(-148, 126, count // 32 + 1), 32)[:count]
    return np.ldexp(rng.uniform(-1, 1, count), exponents)


def _any_bits(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)


def _ties(rng: np.random.Generator, count: int) -> np.ndarray:
    x = rng.integers(-126, 127, count) + 0.5
    x[::32] = 127
    return x


def _not_finite(rng: np.random.Generator, count: int) -> np.ndarray:
    x = rng.standard_normal(count)
    x[rng.random(count) < 0.004] = np.inf
    x[rng.random(count) < 0.004] = np.nan
    return x


KINDS = {
    "normal": lambda rng, count: rng.standard_normal(count),
    "negative": lambda rng, count: -rng.random(count) - 0.01,
    "zeros": lambda rng, count: rng.standard_normal(count) * (rng.random(count) < 0.01),
    "tiny": lambda rng, count: rng.standard_normal(count) * 2.0**-107,
    "ties": _ties,
    "every exponent": _every_exponent,
    "exponent by block": _exponent_by_block,
    "any bits": _any_bits,
    "not finite": _not_finite,
}
kinds = st.sampled_from(sorted(KINDS))
finite_kinds = st.sampled_from(["normal", "negative", "zeros", "tiny", "ties"])


def numbers(kind: str, seed: int, count: int, dtype: str) -> torch.Tensor:
    """`count` numbers of one of KINDS."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = KINDS[kind](np.random.default_rng(seed), count).astype(np.float32)
    return torch.from_numpy(x).to(DTYPES[dtype])


def as_float32(x: torch.Tensor) -> np.ndarray:
    """The same values for the oracle: 1-D, float32."""
    return x.float().flatten().numpy()


def bits(x: torch.Tensor) -> bytes:
    """The memory of `x`, NaNs made alike: what differs between NaNs is not in the contract."""
    x = torch.where(x.isnan(), torch.full((), float("nan"), dtype=x.dtype), x)
    return x.contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b""
