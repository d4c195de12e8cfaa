"""Arguments of the kernels as bytes: the structs of libagoqcomm/src/codec/cuda/arguments.h."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

MAX_SEGMENTS = 64
MAX_SUM_SEGMENTS = 16
MAX_PIECES = 256
THREADS = 256
VECTOR = 8

BITS = {"int8": 8, "fp4": 4, "e2m3": 6, "int4": 4, "int6": 6}
TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
_SCALES = {"bf16": 0, "fp32": 1}


@dataclass(frozen=True)
class Rounding:
    """The fields of the core's Rounding."""

    stochastic: bool = False
    seed: int = 0
    call: int = 0
    rank: int = 0
    stage: int = 0

    def pack(self) -> bytes:
        """Return a RoundingKey."""
        return struct.pack("<QIII4x", self.seed, self.call, self.rank, self.stage)


@dataclass(frozen=True)
class Sum:
    """What all segments of a sum have in common."""

    pieces: int
    """Encoded ones: the owner's is not among them."""
    own_rank: int = -1
    own_type: str = "float32"
    residual_type: str = "float32"
    type: str = "float32"
    factor: float = 1.0


@dataclass(frozen=True)
class SumSegment:
    """Addresses of one segment of a sum; 0 for what is absent."""

    count: int
    scale_offset: int
    pieces: list[int]
    own: int = 0
    start: int = 0
    residual: int = 0
    encoded: int = 0
    values: int = 0
    first_element: int = 0


@dataclass
class Shape:
    """A block format, as far as its block length and scales go."""

    block: int
    scale: str
    vectors: int = field(init=False)

    def __post_init__(self) -> None:
        self.vectors = self.block // VECTOR

    def pack(self) -> bytes:
        """Return a BlockShape."""
        logarithm = self.vectors.bit_length() - 1
        return struct.pack("<iiB3x", self.vectors, logarithm, _SCALES[self.scale])

    @property
    def vectors_per_lane(self) -> int:
        """Return which instance of a kernel template takes blocks of this length."""
        return max(1, self.vectors // 32)

    def thread_blocks(self, count: int) -> int:
        """Return how wide a launch takes `count` elements in one turn."""
        return -(-count // (THREADS * VECTOR * self.vectors_per_lane))


def encode_arguments(
    shape: Shape,
    type_name: str,
    segments: list[tuple[int, int, int, int, int]],
    rounding: Rounding | None = None,
) -> bytes:
    """EncodeArguments of segments (values, encoded, count, scale_offset, first_element)."""
    head = shape.pack() + bytes(4) + (rounding or Rounding()).pack()
    head += struct.pack("<B7x", TYPES[type_name])
    body = b"".join(struct.pack("<QQqqq", *segment) for segment in segments)
    return head + body.ljust(40 * MAX_SEGMENTS, b"\0")


def decode_arguments(shape: Shape, segments: list[tuple[int, int, int, int]]) -> bytes:
    """DecodeArguments of segments (encoded, values, count, scale_offset)."""
    body = b"".join(struct.pack("<QQqq", *segment) for segment in segments)
    return shape.pack() + bytes(4) + body.ljust(32 * MAX_SEGMENTS, b"\0")


def sum_arguments(
    shape: Shape, common: Sum, segments: list[SumSegment], rounding: Rounding | None = None
) -> bytes:
    """SumArguments."""
    head = shape.pack() + bytes(4) + (rounding or Rounding()).pack()
    types = (TYPES[name] for name in (common.own_type, common.residual_type, common.type))
    head += struct.pack("<fiiBBBx", common.factor, common.pieces, common.own_rank, *types)
    body = b"".join(
        struct.pack(
            "<QQQQQqqq",
            *(s.own, s.start, s.residual, s.encoded, s.values),
            *(s.count, s.scale_offset, s.first_element),
        )
        for s in segments
    )
    pieces = b"".join(struct.pack("<Q", address) for s in segments for address in s.pieces)
    return head + body.ljust(64 * MAX_SUM_SEGMENTS, b"\0") + pieces.ljust(8 * MAX_PIECES, b"\0")


@dataclass(frozen=True)
class Rows:
    """A call on rows; addresses are 0 for what is absent."""

    rows: int
    width: int
    row_code_bytes: int
    row_scale_bytes: int
    scale_offset: int
    pieces: list[int]
    """Encoded ones: the owner's is not among them."""
    own_rank: int = -1
    type: str = "float32"
    factor: float = 1.0
    epsilon: float = 0.0
    has_norm: bool = False
    own: int = 0
    residual: int = 0
    values: int = 0
    weight: int = 0
    normed: int = 0
    encoded: int = 0
    """Codes from here on, as many rows as the call's."""


def row_arguments(shape: Shape, call: Rows, rounding: Rounding | None = None) -> bytes:
    """RowArguments."""
    rounding = rounding or Rounding()
    code_bytes = call.rows * call.row_code_bytes
    places = [call.encoded + offset for offset in (0, call.scale_offset, code_bytes)]
    head = shape.pack() + bytes(4) + rounding.pack()
    head += struct.pack("<qqqq", call.rows, 0, call.row_code_bytes, call.row_scale_bytes)
    head += struct.pack("<qiff", call.scale_offset, call.width, call.factor, call.epsilon)
    types = (TYPES[call.type], TYPES[call.type], call.has_norm, rounding.stochastic)
    head += struct.pack("<iiBB??", len(call.pieces), call.own_rank, *types)
    head += struct.pack("<QQQQQ", call.own, call.residual, call.values, call.weight, call.normed)
    head += struct.pack("<QQQ", *(places if call.encoded else (0, 0, 0)))
    head += struct.pack("<i4x", call.scale_offset - code_bytes if call.encoded else 0)
    pieces = b"".join(struct.pack("<Q", address) for address in call.pieces)
    return head + pieces.ljust(8 * MAX_PIECES, b"\0")
