"""The numeric contract in NumPy, written from its text (docs/numerics.md) and from no other code.

Arrays are 1-D float32 unless a function says otherwise; bfloat16 travels as the float32 it equals.
Scales are computed in float64, where absmax / 127 has no double rounding that could matter.
"""

from __future__ import annotations

import numpy as np

QMAX = 127
SMALLEST_SCALE = 2.0**-100

# What code c, as an unsigned number, stands for: integers in two's complement; a sign bit before
# a magnitude else.
_E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
_E2M3 = [m / 8 for m in range(16)] + [m / 4 for m in range(8, 16)] + [m / 2 for m in range(8, 16)]
NUMBERS = {
    "int8": [*range(128), *range(-128, 0)],
    "fp4": _E2M1 + [-m for m in _E2M1],
    "e2m3": _E2M3 + [-m for m in _E2M3],
    "int4": [*range(8), *range(-8, 0)],
    "int6": [*range(32), *range(-32, 0)],
}
BITS = {"int8": 8, "fp4": 4, "e2m3": 6, "int4": 4, "int6": 6}


def round_to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 to the nearest bfloat16, ties to even, as float32."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), np.float32(np.nan), rounded.astype(np.uint32).view(np.float32))


def round_to(x: np.ndarray, dtype: str) -> np.ndarray:
    """float32 rounded once to `dtype`, as float32."""
    if dtype == "bfloat16":
        return round_to_bf16(x)
    with np.errstate(over="ignore"):
        return x.astype(dtype).astype(np.float32)


def _round_up_to_bf16(x: np.ndarray) -> np.ndarray:
    """Non-negative finite float64 to the next bfloat16 that is not below it, as float32."""
    with np.errstate(under="ignore"):
        bits = x.astype(np.float32).view(np.uint32) & 0xFFFF0000
    below = bits.view(np.float32)
    above = (bits + 0x10000).view(np.float32)
    return np.where(below.astype(np.float64) >= x, below, above)


def block_scales(x: np.ndarray, block: int, scale: str, element: str = "int8") -> np.ndarray:
    """One float32 scale a block: NaN for a block that is not finite, 0 for one of tiny values."""
    padded = np.concatenate([x, np.zeros(-len(x) % block, np.float32)]).reshape(-1, block)
    finite = np.isfinite(padded).all(axis=1)
    absmax = np.abs(np.where(finite[:, None], padded, 0)).max(axis=1, initial=0)
    exact = absmax.astype(np.float64) / max(NUMBERS[element])
    scales = _round_up_to_bf16(exact) if scale == "bf16" else exact.astype(np.float32)
    scales = np.where(scales < SMALLEST_SCALE, np.float32(0), scales)
    return np.where(finite, scales, np.float32(np.nan)).astype(np.float32)


def philox_uniform(
    seed: int, call: int, rank: int, stage: int, first: int, count: int
) -> np.ndarray:
    """Philox4x32-10 for elements first .. first + count - 1, as float32 in [0, 1)."""
    index = np.arange(first, first + count, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    c = [
        (index >> np.uint64(2)) & low,
        index >> np.uint64(34),
        np.full(count, call, np.uint64),
        np.full(count, rank | stage << 24, np.uint64),
    ]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        shift = np.uint64(32)
        c = [
            (p1 >> shift) ^ c[1] ^ np.uint64(key[0]),
            p1 & low,
            (p0 >> shift) ^ c[3] ^ np.uint64(key[1]),
            p0 & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    words = np.choose((index & np.uint64(3)).astype(np.int64), c)
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)


def codes(
    x: np.ndarray,
    scales: np.ndarray,
    block: int,
    uniform: np.ndarray | None = None,
    element: str = "int8",
) -> np.ndarray:
    """Codes as unsigned numbers: x times the reciprocal of its block's scale, to the nearest one.

    With `uniform`, rounded up where it is less than the distance from the code below; in the
    formats of sign and magnitude that is the magnitude.
    """
    usable = np.isfinite(scales) & (scales > 0)
    inverse = np.float32(1) / np.where(usable, scales, np.float32(1))
    each = np.repeat(np.where(usable, inverse, np.float32(0)), block)[: len(x)]
    used = np.repeat(usable, block)[: len(x)]
    with np.errstate(under="ignore"):
        y = np.where(used, x, np.float32(0)) * each
    bits = BITS[element]
    if element.startswith("int"):
        qmax = max(NUMBERS[element])
        steps = np.rint(y) if uniform is None else np.floor(y) + (uniform < y - np.floor(y))
        return (np.clip(steps, -qmax, qmax).astype(np.int64) % 2**bits).astype(np.uint8)
    magnitudes = np.array(NUMBERS[element][: 2 ** (bits - 1)])
    size = np.minimum(np.abs(y), magnitudes[-1])
    below = np.minimum(np.searchsorted(magnitudes, size, "right") - 1, len(magnitudes) - 2)
    distance = (size - magnitudes[below]) / (magnitudes[below + 1] - magnitudes[below])  # exact
    if uniform is None:
        up = (distance > 0.5) | ((distance == 0.5) & (below % 2 == 1))
    else:
        up = uniform < distance
    code = below + up
    return np.where((y < 0) & (code > 0), code + 2 ** (bits - 1), code).astype(np.uint8)


def pack(code: np.ndarray, bits: int) -> bytes:
    """Codes one after the other, the lowest bit first."""
    each = np.unpackbits(code.reshape(-1, 1), axis=1, bitorder="little")[:, :bits]
    return np.packbits(each, bitorder="little").tobytes()


def unpack(encoded: bytes, count: int, bits: int) -> np.ndarray:
    """The first `count` codes."""
    each = np.unpackbits(np.frombuffer(encoded, np.uint8), bitorder="little")[: count * bits]
    return np.packbits(each.reshape(-1, bits), axis=1, bitorder="little").ravel()


def encode(
    x: np.ndarray,
    block: int = 128,
    scale: str = "bf16",
    uniform: np.ndarray | None = None,
    element: str = "int8",
) -> bytes:
    """Encoded bytes: codes, zero bytes up to the alignment of a scale, scales."""
    scales = block_scales(x, block, scale, element)
    code_bytes = pack(codes(x, scales, block, uniform, element), BITS[element])
    width = 2 if scale == "bf16" else 4
    bits = np.where(np.isnan(scales), np.uint32(0x7FC00000), scales.view(np.uint32))
    scale_bytes = (bits >> 16).astype("<u2") if scale == "bf16" else bits.astype("<u4")
    return code_bytes + bytes(-len(code_bytes) % width) + scale_bytes.tobytes()


def decode(
    encoded: bytes, count: int, block: int = 128, scale: str = "bf16", element: str = "int8"
) -> np.ndarray:
    """Code times scale in float32."""
    width = 2 if scale == "bf16" else 4
    blocks = -(-count // block)
    raw = encoded[len(encoded) - blocks * width :]
    if scale == "bf16":
        scales = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        scales = np.frombuffer(raw, "<f4")
    numbers = np.array(NUMBERS[element], np.float32)[unpack(encoded, count, BITS[element])]
    return numbers * np.repeat(scales, block)[:count]


def roundtrip(
    x: np.ndarray, block: int = 128, scale: str = "bf16", element: str = "int8"
) -> np.ndarray:
    """What the receiver of encoded `x` sees."""
    return decode(encode(x, block, scale, None, element), len(x), block, scale, element)


def _reduced_chunk(
    pieces: list[np.ndarray],
    owner: int,
    factor: np.float32 | None,
    block: int,
    scale: str,
    element: str,
) -> np.ndarray:
    """float32 sum in rank order; the owner's own piece is not encoded."""
    total = None
    with np.errstate(over="ignore", invalid="ignore"):
        for rank, piece in enumerate(pieces):
            seen = piece if rank == owner else roundtrip(piece, block, scale, element)
            total = seen.copy() if total is None else total + seen
        return total if factor is None else total * factor


def reduction_factor(op: str, ranks: int, factor: float) -> np.float32 | None:
    """What the float32 sum is multiplied by, or None."""
    if op == "avg":
        return np.float32(1) / np.float32(ranks)
    return np.float32(factor) if op == "premul_sum" else None


def reduce_scatter(
    inputs: list[list[np.ndarray]],
    dtype: str,
    op: str = "sum",
    factor: float = 1.0,
    block: int = 128,
    scale: str = "bf16",
    element: str = "int8",
) -> list[np.ndarray]:
    """inputs[rank][owner] -> the result of each owner: encoded once."""
    ranks = len(inputs)
    by = reduction_factor(op, ranks, factor)
    pieces = [[inputs[r][owner] for r in range(ranks)] for owner in range(ranks)]
    return [
        round_to(_reduced_chunk(pieces[owner], owner, by, block, scale, element), dtype)
        for owner in range(ranks)
    ]


def chunk_bounds(count: int, ranks: int, block: int) -> list[int]:
    """Where each rank's chunk of an all-reduce starts, and the end: whole blocks, evenly dealt."""
    blocks = -(-count // block)
    starts = [0]
    for rank in range(ranks):
        share = blocks // ranks + (1 if rank < blocks % ranks else 0)
        starts.append(min(count, starts[-1] + share * block))
    return starts


def all_reduce(
    inputs: list[np.ndarray],
    dtype: str,
    op: str = "sum",
    factor: float = 1.0,
    block: int = 128,
    scale: str = "bf16",
    element: str = "int8",
) -> np.ndarray:
    """The result that every rank gets: encoded twice, for any number of ranks."""
    ranks = len(inputs)
    by = reduction_factor(op, ranks, factor)
    bounds = chunk_bounds(len(inputs[0]), ranks, block)
    result = np.empty_like(inputs[0])
    for owner in range(ranks):
        chunk = slice(bounds[owner], bounds[owner + 1])
        total = _reduced_chunk([x[chunk] for x in inputs], owner, by, block, scale, element)
        result[chunk] = round_to(roundtrip(total, block, scale, element), dtype)
    return result


def half_steps(x: np.ndarray, block: int, scale: str) -> np.ndarray:
    """The most that one encoding of `x` may be off, for each element: half its block's step.

    The product with the reciprocal is rounded to float32, twice with the reciprocal itself, so a
    tie may fall on the wrong side by 127 * 2**-23 of a step.
    """
    scales = block_scales(x, block, scale).astype(np.float64)
    step = np.where(scales > 0, scales, SMALLEST_SCALE * QMAX * 2)
    return np.repeat(step * (0.5 + QMAX * 2.0**-23), block)[: len(x)]
