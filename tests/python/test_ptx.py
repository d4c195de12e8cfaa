"""The PTX that nvcc makes of the CUDA kernels, run by tools/ptxsim, against the CPU's codec."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

import agoq_comm
from agoq_comm.sequence_parallel.row_blocks import RowBlocks

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import kernel_arguments as ka  # noqa: E402 - needs the path above
import kernels  # noqa: E402
from ptxsim import Buffer, FaultError, Machine, Program  # noqa: E402

if kernels.nvcc() is None:
    pytest.skip("there is no nvcc here to compile the CUDA kernels", allow_module_level=True)

TORCH_TYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
SHAPES = [ka.Shape(128, "bf16"), ka.Shape(32, "fp32"), ka.Shape(1024, "bf16")]
# Every combination for the default format; each type and shape once for the others.
CASES = [("int8", name, shape) for name in TORCH_TYPES for shape in SHAPES] + [
    (name, *case)
    for name in kernels.FORMATS[1:]
    for case in zip(("bfloat16", "float32", "float16"), SHAPES, strict=True)
]


@functools.cache
def program(format_name: str, architecture: str) -> Program:
    return Program(kernels.ptx(format_name, architecture))


def values(type_name: str, count: int, seed: int, hostile: bool = False) -> torch.Tensor:
    """Numbers; hostile ones are any bits, ties, and blocks with a NaN or an infinity."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(count).astype(np.float32)
    if hostile:
        third = count // 3
        x[:third] = random.integers(0, 2**32, third, dtype=np.uint32).view(np.float32)
        x[third : 2 * third] = random.integers(-126, 126, third) + np.float32(0.5)
        x[2 * third :: 200] = np.inf
    return torch.from_numpy(x).to(TORCH_TYPES[type_name])


def raw(x: torch.Tensor) -> npt.NDArray[np.uint8]:
    return x.contiguous().view(torch.uint8).numpy()


def fresh(size: int) -> npt.NDArray[np.uint8]:
    return np.full(size, 0xA5, np.uint8)


def encode(
    x: torch.Tensor,
    format_name: str,
    shape: ka.Shape,
    rounding: agoq_comm.StochasticRounding | None = None,
) -> agoq_comm.Encoded:
    return agoq_comm.encode(
        x,
        format=format_name,
        block=shape.block,
        scale=shape.scale,
        isa="scalar",
        rounding=rounding,
    )


def scale_offset(encoded: agoq_comm.Encoded, shape: ka.Shape) -> int:
    blocks = -(-encoded.numel() // shape.block)
    return encoded.data.numel() - blocks * (2 if shape.scale == "bf16" else 4)


def assert_written(buffer: Buffer, expected: torch.Tensor) -> None:
    """Every byte was stored once, and is what the CPU computes."""
    assert buffer.is_written
    assert buffer.bytes.tobytes() == raw(expected).tobytes()


architectures = pytest.mark.parametrize("architecture", kernels.ARCHITECTURES)
formats = pytest.mark.parametrize("format_name", kernels.FORMATS)
cases = pytest.mark.parametrize(
    ("format_name", "type_name", "shape"),
    CASES,
    ids=[f"{name}-{of}-{shape.block}-{shape.scale}" for name, of, shape in CASES],
)
# Not a multiple of the block, nor of a vector; and misaligned by one element, or one byte.
COUNT = 2 * 1024 + 333
MISALIGNMENTS = {"float32": (0, 4, 1), "bfloat16": (0, 2, 1), "float16": (0, 2, 1)}


def encode_instance(shape: ka.Shape, type_name: str, stochastic: bool) -> tuple[str, str]:
    any_type = stochastic or shape.vectors_per_lane > 1
    number = 255 if any_type else ka.TYPES[type_name]
    flag = int(stochastic)
    return "encode_kernel", f"DataTypeE{number}ELi{shape.vectors_per_lane}ELb{flag}E"


@architectures
@cases
def test_encode(architecture: str, format_name: str, type_name: str, shape: ka.Shape) -> None:
    machine = Machine(program(format_name, architecture))
    kernel = machine.program.find(*encode_instance(shape, type_name, stochastic=False))
    for misalignment in MISALIGNMENTS[type_name]:
        x = values(type_name, COUNT, misalignment, hostile=True)
        expected = encode(x, format_name, shape)
        source = machine.add(raw(x), misalignment)
        target = machine.add(fresh(expected.data.numel()), misalignment and 4)
        segment = (source.base, target.base, COUNT, scale_offset(expected, shape), 0)
        arguments = ka.encode_arguments(shape, type_name, [segment])
        machine.launch(kernel, (shape.thread_blocks(COUNT), 1), ka.THREADS, arguments)
        assert_written(target, expected.data)


@architectures
@cases
def test_encode_by_chance(
    architecture: str, format_name: str, type_name: str, shape: ka.Shape
) -> None:
    machine = Machine(program(format_name, architecture))
    kernel = machine.program.find(*encode_instance(shape, type_name, stochastic=True))
    x = values(type_name, COUNT, 1, hostile=True)
    first = {"float32": 0, "bfloat16": 1, "float16": 2**34 + 3}[type_name]
    key = {"seed": 2**60 + 17, "call": 5, "rank": 3, "stage": 1}
    rounding = agoq_comm.StochasticRounding(**key, first_element=first)
    expected = encode(x, format_name, shape, rounding)
    source, target = machine.add(raw(x)), machine.add(fresh(expected.data.numel()))
    segment = (source.base, target.base, COUNT, scale_offset(expected, shape), first)
    arguments = ka.encode_arguments(shape, type_name, [segment], ka.Rounding(True, **key))
    machine.launch(kernel, (shape.thread_blocks(COUNT), 1), ka.THREADS, arguments)
    assert_written(target, expected.data)


@architectures
@cases
def test_decode(architecture: str, format_name: str, type_name: str, shape: ka.Shape) -> None:
    machine = Machine(program(format_name, architecture))
    kernel = machine.program.find("decode_kernel", f"DataTypeE{ka.TYPES[type_name]}E")
    misalignment = MISALIGNMENTS[type_name][SHAPES.index(shape)]
    encoded = encode(values("float32", COUNT, 2, hostile=True), format_name, shape)
    # All codes, those that no encoder writes too; infinite and subnormal scales.
    encoded.data[:256] = torch.arange(256, dtype=torch.uint8)
    encoded.data[-40:] = torch.arange(40, dtype=torch.uint8) * 6
    expected = agoq_comm.decode(encoded, dtype=TORCH_TYPES[type_name], isa="scalar")
    source = machine.add(raw(encoded.data))
    target = machine.add(fresh(raw(expected).size), misalignment)
    segment = (source.base, target.base, COUNT, scale_offset(encoded, shape))
    arguments = ka.decode_arguments(shape, [segment])
    machine.launch(kernel, (-(-COUNT // 2048), 1), ka.THREADS, arguments)
    assert_written(target, expected)


@architectures
@formats
def test_accumulate(architecture: str, format_name: str) -> None:
    machine = Machine(program(format_name, architecture))
    kernel = machine.program.find("accumulate_kernel")
    for shape, misalignment in zip(SHAPES, MISALIGNMENTS["float32"], strict=True):
        encoded = encode(values("float32", COUNT, 3, hostile=True), format_name, shape)
        start = values("float32", COUNT, 4)
        source, target = machine.add(raw(encoded.data)), machine.add(raw(start), misalignment)
        agoq_comm.decode_accumulate(encoded, start, isa="scalar")
        segment = (source.base, target.base, COUNT, scale_offset(encoded, shape))
        arguments = ka.decode_arguments(shape, [segment])
        machine.launch(kernel, (-(-COUNT // 2048), 1), ka.THREADS, arguments)
        assert_written(target, start)


@architectures
@cases
def test_sums(architecture: str, format_name: str, type_name: str, shape: ka.Shape) -> None:
    """Six pieces of which one is the owner's, and one has blocks of NaN."""
    machine = Machine(program(format_name, architecture))
    dtype = TORCH_TYPES[type_name]
    own_rank = SHAPES.index(shape) + 3
    pieces: list[agoq_comm.Encoded | torch.Tensor] = []
    addresses = []
    for rank in range(6):
        piece = encode(values("float32", COUNT, rank, hostile=rank == 1), format_name, shape)
        if rank == own_rank:
            pieces.append(values(type_name, COUNT, 9))
        else:
            pieces.append(piece)
            addresses.append(machine.add(raw(piece.data)).base)
        offset = scale_offset(piece, shape)
    own = machine.add(raw(values(type_name, COUNT, 9)))
    common = ka.Sum(len(addresses), own_rank, type_name, type_name, type_name, 1 / 3)

    def launch(kernel: str, blocks: int, values_at: int, encoded_at: int = 0) -> None:
        segment = ka.SumSegment(
            COUNT, offset, addresses, own=own.base, encoded=encoded_at, values=values_at
        )
        arguments = ka.sum_arguments(shape, common, [segment])
        machine.launch(machine.program.find(kernel, instance), (blocks, 1), ka.THREADS, arguments)

    instance = ""
    expected = agoq_comm.sum_decode(pieces, factor=1 / 3, dtype=dtype, isa="scalar")
    target = machine.add(fresh(raw(expected).size))
    launch("sum_decode_kernel", -(-COUNT // 2048), target.base)
    assert_written(target, expected)

    instance = f"ELi{shape.vectors_per_lane}ELb0E"
    decoded = torch.empty(COUNT, dtype=dtype)
    summed = agoq_comm.sum_encode(pieces, factor=1 / 3, decoded=decoded, isa="scalar")
    target = machine.add(fresh(raw(decoded).size), 2)
    encoded = machine.add(fresh(summed.data.numel()))
    launch("sum_encode_kernel", shape.thread_blocks(COUNT), target.base, encoded.base)
    assert_written(encoded, summed.data)
    assert_written(target, decoded)


@architectures
def test_sum_from_a_start_with_a_residual_over_segments(architecture: str) -> None:
    machine = Machine(program("e2m3", architecture))
    shape = SHAPES[0]
    counts = (1000, 1, 640)
    segments, expected, targets = [], [], []
    for seed, count in enumerate(counts):
        piece = encode(values("float32", count, seed), "e2m3", shape)
        start, residual = values("float32", count, 20 + seed), values("bfloat16", count, 30 + seed)
        x = start.clone()
        agoq_comm.decode_accumulate(piece, x, isa="scalar")
        expected.append((x * np.float32(0.5) + residual.float()).to(torch.bfloat16))
        targets.append(machine.add(fresh(2 * count)))
        segments.append(
            ka.SumSegment(
                count,
                scale_offset(piece, shape),
                [machine.add(raw(piece.data)).base],
                start=machine.add(raw(start)).base,
                residual=machine.add(raw(residual)).base,
                values=targets[-1].base,
            )
        )
    common = ka.Sum(1, residual_type="bfloat16", type="bfloat16", factor=0.5)
    arguments = ka.sum_arguments(shape, common, segments)
    kernel = machine.program.find("sum_decode_kernel")
    machine.launch(kernel, (1, len(counts)), ka.THREADS, arguments)
    for target, values_of_segment in zip(targets, expected, strict=True):
        assert_written(target, values_of_segment)


def canonical_nan(x: torch.Tensor) -> torch.Tensor:
    """Put the only NaN that is ever written in the place of those that torch makes."""
    return x if x.dtype == torch.uint8 else torch.where(x.isnan(), float("nan"), x)


def rms_factor(x: torch.Tensor, epsilon: np.float32) -> torch.Tensor:
    """Each row's factor, in fp32 and in the contract's order of additions; a column."""
    padded = torch.nn.functional.pad(x.float(), (0, -x.shape[1] % 1024))
    total = torch.zeros(len(x))
    for run in padded.split(1024, dim=1):
        squares = [part * part for part in run.split(256, dim=1)]
        partial = ((squares[0] + squares[1]) + squares[2]) + squares[3]
        while partial.shape[1] > 1:
            half = partial.shape[1] // 2
            partial = partial[:, :half] + partial[:, half:]
        total = total + partial[:, 0]
    mean = (total / np.float32(x.shape[1]) + epsilon).numpy()
    return torch.from_numpy(np.float32(1) / np.sqrt(mean))[:, None]


# Each format with rows of whole vectors, and with rows that start at any byte.
ROW_CASES = [
    (name, tuple(TORCH_TYPES)[(which + odd) % 3], SHAPES[(2 * which + odd) % 3], 1152 - 61 * odd)
    for which, name in enumerate(kernels.FORMATS)
    for odd in (0, 1)
]


@architectures
@pytest.mark.parametrize(
    ("format_name", "type_name", "shape", "width"),
    ROW_CASES,
    ids=[f"{name}-{of}-{shape.block}-{width}" for name, of, shape, width in ROW_CASES],
)
def test_rows(
    architecture: str, format_name: str, type_name: str, shape: ka.Shape, width: int
) -> None:
    """Sum, residual, norm and encoding of rows that span two runs of squares; one holds a NaN."""
    machine = Machine(program(format_name, architecture))
    rows, epsilon, dtype = 3, np.float32(1e-5), TORCH_TYPES[type_name]
    codec = RowBlocks(width, format_name, shape.block, shape.scale)
    inputs = [values(type_name, rows * width, seed).view(rows, width) for seed in range(3)]
    inputs[2][1, 40] = float("nan")
    residual = values(type_name, rows * width, 8).view(rows, width)
    weight = values("float32", width, 9)
    encoded = [codec.encode(x) for x in inputs]
    total = torch.full((rows, width), -0.0)
    for rank, data in enumerate(encoded):
        piece = torch.empty(rows, width)
        codec.decode_into(piece, data)
        total = total + (inputs[rank].float() if rank == 1 else piece)
    sums = (total * np.float32(0.5) + residual.float()).to(dtype)
    normed = (sums.float() * rms_factor(sums, epsilon) * weight).to(dtype)
    expected = (sums, normed, codec.encode(normed))

    scale_bytes = -(-width // shape.block) * (2 if shape.scale == "bf16" else 4)
    targets = [machine.add(fresh(raw(x).size)) for x in expected]
    call = ka.Rows(
        rows,
        width,
        row_code_bytes=-(-width * ka.BITS[format_name] // 8),
        row_scale_bytes=scale_bytes,
        scale_offset=len(encoded[0]) - rows * scale_bytes,
        pieces=[machine.add(raw(encoded[rank])).base for rank in (0, 2)],
        own_rank=1,
        type=type_name,
        factor=0.5,
        epsilon=float(epsilon),
        has_norm=True,
        own=machine.add(raw(inputs[1])).base,
        residual=machine.add(raw(residual)).base,
        values=targets[0].base,
        weight=machine.add(raw(weight)).base,
        normed=targets[1].base,
        encoded=targets[2].base,
    )
    kernel = machine.program.find("row_kernel", f"ELi{4 if shape.vectors_per_lane > 1 else 1}E")
    machine.launch(kernel, (1, 1), ka.THREADS, ka.row_arguments(shape, call))
    for target, right in zip(targets, expected, strict=True):
        assert_written(target, canonical_nan(right))


@pytest.mark.parametrize(
    ("cut_source", "cut_target", "misaligned", "launches", "words"),
    [
        (8, 0, 0, 1, "load out of bounds"),
        (0, 8, 0, 1, "store out of bounds"),
        (0, 0, 2, 1, "misaligned"),
        (0, 0, 0, 2, "stored twice"),
    ],
)
def test_the_simulator_notices_what_a_device_would_not(
    cut_source: int, cut_target: int, misaligned: int, launches: int, words: str
) -> None:
    """Buffers that are too short or misaligned; two segments with one output."""
    machine = Machine(program("int8", "90"))
    shape, count = SHAPES[0], 4096
    encoded = encode(values("float32", count, 1), "int8", shape)
    source = machine.add(raw(encoded.data)[: encoded.data.numel() - cut_source], misaligned)
    target = machine.add(fresh(4 * count - cut_target))
    segment = (source.base, target.base, count, scale_offset(encoded, shape))
    arguments = ka.decode_arguments(shape, [segment] * launches)
    kernel = machine.program.find("decode_kernel", "DataTypeE0E")
    with pytest.raises(FaultError, match=words):
        machine.launch(kernel, (2, launches), ka.THREADS, arguments)
