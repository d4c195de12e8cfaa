"""agoq_comm's codec against the oracle, byte for byte, on every instruction set of this machine."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import agoq_comm
import oracle
import strategies as some
from agoq_comm import _C, StochasticRounding
from strategies import as_float32, bits, numbers

ISAS = _C.supported_cpu_isas()
counts = st.one_of(st.integers(0, 300), st.integers(0, 5000))


@given(some.elements, some.kinds, some.seeds, counts, some.dtypes, some.blocks, some.scales)
def test_encode_and_decode_equal_the_oracle(element, kind, seed, count, dtype, block, scale):
    x = numbers(kind, seed, count, dtype)
    expected = oracle.encode(as_float32(x), block, scale, element=element)
    decoded = oracle.decode(expected, count, block, scale, element)
    for isa in ISAS:
        encoded = agoq_comm.encode(x, format=element, block=block, scale=scale, isa=isa)
        assert encoded.data.numpy().tobytes() == expected, isa
        for name, out_type in some.DTYPES.items():
            out = agoq_comm.decode(encoded, dtype=out_type, isa=isa)
            rounded = torch.from_numpy(oracle.round_to(decoded, name)).to(out_type)
            assert bits(out) == bits(rounded), (isa, name)


@given(
    some.elements, some.seeds, counts, some.blocks, some.scales,
    st.integers(0, 2**64 - 1), st.integers(0, 9),
)  # fmt: skip
def test_stochastic_rounding_equals_the_oracle(element, seed, count, block, scale, key, field):
    x = numbers("normal", seed, count, "float32")
    rounding = StochasticRounding(key, call=field, rank=field + 1, stage=1, first_element=4 * field)
    uniform = oracle.philox_uniform(key, field, field + 1, 1, 4 * field, count)
    expected = oracle.encode(as_float32(x), block, scale, uniform, element)
    for isa in ISAS:
        encoded = agoq_comm.encode(
            x, format=element, block=block, scale=scale, rounding=rounding, isa=isa
        )
        assert encoded.data.numpy().tobytes() == expected, isa


@given(
    some.kinds, some.seeds, counts, some.dtypes, some.blocks, some.scales,
    st.integers(1, 5), st.integers(-1, 4), st.sampled_from([1.0, 0.25, 1 / 3]),
)  # fmt: skip
def test_sums_equal_the_oracle(kind, seed, count, dtype, block, scale, ranks, own, factor):
    own = own if own < ranks and ranks > 1 else -1
    inputs = [numbers(kind, seed + r, count, dtype) for r in range(ranks)]
    seen = [
        as_float32(x) if r == own else oracle.roundtrip(as_float32(x), block, scale)
        for r, x in enumerate(inputs)
    ]
    with np.errstate(over="ignore", invalid="ignore"):
        total = seen[0]
        for piece in seen[1:]:
            total = total + piece
        if factor != 1:
            total = total * np.float32(factor)
    rounded = torch.from_numpy(oracle.round_to(total, dtype)).to(some.DTYPES[dtype])
    expected = oracle.encode(total, block, scale)
    for isa in ISAS:
        pieces = [
            x if r == own else agoq_comm.encode(x, block=block, scale=scale, isa=isa)
            for r, x in enumerate(inputs)
        ]
        assert bits(agoq_comm.sum_decode(pieces, factor=factor, isa=isa)) == bits(rounded), isa
        decoded = torch.empty_like(inputs[0])
        encoded = agoq_comm.sum_encode(pieces, factor=factor, decoded=decoded, isa=isa)
        assert encoded.data.numpy().tobytes() == expected, isa
        assert bits(decoded) == bits(agoq_comm.decode(encoded, dtype=decoded.dtype)), isa
        replaced = pieces[1 if own == 0 else 0]
        assert agoq_comm.sum_encode(pieces, factor=factor, out=replaced, isa=isa) is replaced
        assert replaced.data.numpy().tobytes() == expected, isa


@pytest.mark.parametrize("element", oracle.NUMBERS)
@pytest.mark.parametrize("dtype", some.DTYPES)
def test_encodings_are_written_over_in_place(element, dtype):
    old, new = (numbers("normal", seed, 1001, dtype) for seed in (1, 2))
    kept = agoq_comm.encode(old, format=element, block=64, scale="fp32")
    rounding = StochasticRounding(5)
    expected = agoq_comm.sum_encode([kept, new], rounding=rounding)
    address = kept.data.data_ptr()
    assert agoq_comm.sum_encode([kept, new], rounding=rounding, out=kept) is kept
    assert torch.equal(kept.data, expected.data)
    assert agoq_comm.encode(new, out=kept) is kept
    assert torch.equal(
        kept.data, agoq_comm.encode(new, format=element, block=64, scale="fp32").data
    )
    assert kept.data.data_ptr() == address


def test_what_an_encoding_cannot_be_written_to():
    x = torch.randn(256)
    piece = agoq_comm.encode(x)
    with pytest.raises(TypeError, match="out must be Encoded, not Tensor"):
        agoq_comm.sum_encode([piece], out=torch.empty(256))
    with pytest.raises(ValueError, match=r"out has shape \(128,\), what is encoded \(256,\)"):
        agoq_comm.encode(x, out=agoq_comm.encode(x[:128]))
    with pytest.raises(ValueError, match="out and the pieces must have one block, not 64 and 128"):
        agoq_comm.sum_encode([piece], out=agoq_comm.encode(x, block=64))
    memory = torch.zeros(piece.nbytes + 4, dtype=torch.uint8)
    first, second = (dataclasses.replace(piece, data=memory[i : i + piece.nbytes]) for i in (0, 4))
    with pytest.raises(ValueError, match="overlaps a part of piece 0; it may be all of a piece's"):
        agoq_comm.sum_encode([first, piece], out=second)


@given(some.kinds, some.seeds, counts, some.blocks, some.scales)
def test_decode_accumulate_adds_in_fp32(kind, seed, count, block, scale):
    x = numbers(kind, seed, count, "float32")
    start = numbers("normal", seed + 1, count, "float32")
    with np.errstate(over="ignore", invalid="ignore"):
        expected = start.numpy() + oracle.roundtrip(x.numpy(), block, scale)
    for isa in ISAS:
        accumulator = start.clone()
        agoq_comm.decode_accumulate(
            agoq_comm.encode(x, block=block, scale=scale), accumulator, isa=isa
        )
        assert bits(accumulator) == bits(torch.from_numpy(expected)), isa


@given(some.finite_kinds, some.seeds, counts, some.dtypes, some.blocks, some.scales)
def test_one_encoding_errs_by_half_a_step_at_most(kind, seed, count, dtype, block, scale):
    x = numbers(kind, seed, count, dtype)
    decoded = agoq_comm.decode(agoq_comm.encode(x, block=block, scale=scale), dtype=torch.float32)
    error = np.abs(as_float32(decoded).astype(np.float64) - as_float32(x))
    assert (error <= oracle.half_steps(as_float32(x), block, scale)).all()


@given(some.seeds, st.integers(0, 3), st.integers(1, 700), some.dtypes)
def test_memory_of_any_alignment(seed, offset, count, dtype):
    x = numbers("normal", seed, count + offset, dtype)[offset:]
    aligned = agoq_comm.encode(x.clone())
    for isa in ISAS:
        encoded = agoq_comm.encode(x, isa=isa)
        assert torch.equal(encoded.data, aligned.data)
        out = torch.full((count + offset + 1,), 7, dtype=x.dtype)
        agoq_comm.decode(encoded, out=out[offset : offset + count], isa=isa)
        assert torch.equal(out[offset : offset + count], agoq_comm.decode(aligned))
        assert (out[:offset] == 7).all() and out[-1] == 7


@pytest.mark.parametrize(
    ("element", "stated"),
    [("int8", 0.0065), ("fp4", 0.109), ("e2m3", 0.0265), ("int4", 0.117), ("int6", 0.0265)],
)
def test_l2_error_is_that_of_the_documentation(element, stated):
    x = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0))
    error = (agoq_comm.decode(agoq_comm.encode(x, format=element)) - x).norm() / x.norm()
    assert float(error) == pytest.approx(stated, rel=0.02)


@pytest.mark.parametrize("element", oracle.NUMBERS)
def test_codes_and_scales_are_views_of_the_bytes(element):
    encoded = agoq_comm.encode(torch.randn(301), format=element, scale="fp32")
    code_bytes = -(-301 * oracle.BITS[element] // 8)
    assert torch.equal(encoded.codes.view(torch.uint8), encoded.data[:code_bytes])
    assert encoded.codes.dtype == (torch.int8 if element == "int8" else torch.uint8)
    assert torch.equal(encoded.scales.view(torch.uint8), encoded.data[-12:])


def test_stochastic_rounding_is_unbiased():
    """10,000 trials of 128 values: the mean error is within 5 of its standard deviations."""
    trials = 10_000
    x = numbers("normal", 3, 128, "float32")
    step = float(agoq_comm.encode(x).scales[0])
    codes = torch.stack(
        [agoq_comm.encode(x, rounding=StochasticRounding(9, call=i)).codes for i in range(trials)]
    ).double()
    position = x.double() / step
    up = position - position.floor()
    sigma = (up * (1 - up) / trials).sqrt()
    bias = (codes.mean(0) - position).abs()
    assert (bias <= 5 * sigma + 1e-5).all()
    nearest = (agoq_comm.encode(x).codes.double() - position).abs()
    assert (nearest > 5 * sigma + 1e-5).any(), "the bound would pass rounding to nearest too"


def test_stochastic_rounding_repeats_and_every_field_matters():
    x = torch.randn(4096)
    base = dict(seed=1, call=2, rank=3, stage=0, first_element=8)
    data = agoq_comm.encode(x, rounding=StochasticRounding(**base)).data
    assert torch.equal(agoq_comm.encode(x, rounding=StochasticRounding(**base)).data, data)
    for field in base:
        changed = StochasticRounding(**{**base, field: base[field] + 4})
        assert not torch.equal(agoq_comm.encode(x, rounding=changed).data, data), field


def test_a_buffer_encoded_in_parts_draws_the_same_numbers():
    x = torch.randn(1024)
    whole = agoq_comm.encode(x, rounding=StochasticRounding(5))
    parts = [
        agoq_comm.encode(x[i : i + 256], rounding=StochasticRounding(5, first_element=i))
        for i in range(0, 1024, 256)
    ]
    assert torch.equal(torch.cat([part.codes for part in parts]), whole.codes)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5, 7), (4, 0, 2)])
def test_shapes_are_kept(shape):
    x = torch.randn(shape)
    encoded = agoq_comm.encode(x)
    assert encoded.shape == x.shape and encoded.numel() == x.numel()
    assert agoq_comm.decode(encoded).shape == x.shape
    assert encoded.codes.numel() == x.numel()
    assert encoded.scales.numel() == -(-x.numel() // 128)


def test_numpy_and_buffers_are_taken():
    array = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    expected = agoq_comm.encode(torch.from_numpy(array)).data
    read_only = array.copy()
    read_only.flags.writeable = False
    for x in (array, read_only, memoryview(array), torch.from_numpy(array)):
        assert torch.equal(agoq_comm.encode(x).data, expected)
    out = np.empty(300, np.float32)
    agoq_comm.decode(agoq_comm.encode(array), out=out)
    np.testing.assert_array_equal(out, oracle.roundtrip(array))


def test_memory_that_is_not_contiguous_is_taken_in_row_major_order():
    x = torch.randn(64, 48).t()
    assert torch.equal(agoq_comm.encode(x).data, agoq_comm.encode(x.contiguous()).data)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int8, torch.int64, torch.complex64])
def test_other_dtypes_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match=f"{dtype}.*float32, bfloat16 and float16"):
        agoq_comm.encode(torch.ones(4).to(dtype))


@pytest.mark.parametrize(
    "arguments,words",
    [
        ({"block": 48}, "block"),
        ({"block": 16}, "block"),
        ({"block": 2048}, "block"),
        ({"format": "int7"}, "int8"),
        ({"scale": "fp8"}, "bf16"),
        ({"isa": "sse9"}, "avx2"),
    ],
)
def test_a_wrong_format_gets_a_sentence(arguments, words):
    with pytest.raises(ValueError, match=words):
        agoq_comm.encode(torch.ones(4), **arguments)


def test_wrong_memory_gets_a_sentence():
    encoded = agoq_comm.encode(torch.ones(4))
    with pytest.raises(ValueError, match="shape"):
        agoq_comm.decode(encoded, out=torch.empty(5))
    with pytest.raises(ValueError, match="contiguous"):
        agoq_comm.decode(encoded, out=torch.empty(8)[::2])
    with pytest.raises(TypeError, match="float32"):
        agoq_comm.decode_accumulate(encoded, torch.empty(4, dtype=torch.float16))
    with pytest.raises(ValueError, match="6 contiguous bytes"):
        agoq_comm.Encoded(torch.empty(5, dtype=torch.uint8), torch.Size([4]), torch.float32)
    with pytest.raises(ValueError, match="one block"):
        agoq_comm.sum_decode([encoded, agoq_comm.encode(torch.ones(4), block=64)])
    with pytest.raises(ValueError, match="at most one"):
        agoq_comm.sum_decode([torch.ones(4), encoded, torch.ones(4)])
    with pytest.raises(ValueError, match="dense"):
        agoq_comm.encode(torch.ones(4).to_sparse())
