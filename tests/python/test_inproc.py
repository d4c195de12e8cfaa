"""Collectives among threads against the oracle: worlds of 1 to 5, any shape, dtype and format."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import agoq_comm
import oracle
import strategies as some
import threads
from strategies import as_float32, bits, numbers

worlds = st.integers(1, 5)
ops = st.sampled_from(["sum", "avg", "premul_sum"])
counts = st.one_of(st.integers(0, 300), st.integers(0, 6000))
FACTOR = 0.3


def _options(block=128, scale="bf16", segment=65536, **more) -> agoq_comm.Options:
    return agoq_comm.Options(block=block, scale=scale, segment_numel=segment, min_numel=0, **more)


def _inputs(kind, seed, world, count, dtype):
    return [numbers(kind, seed + r, count, dtype) for r in range(world)]


def _as_tensor(x: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(x).to(some.DTYPES[dtype])


@settings(max_examples=150)
@given(
    worlds, some.kinds, some.seeds, counts, some.dtypes, some.elements, some.blocks, some.scales,
    ops, st.sampled_from([1, 32, 1000, 65536]),
)  # fmt: skip
def test_all_reduce_equals_the_oracle(
    world, kind, seed, count, dtype, element, block, scale, op, segment
):
    inputs = _inputs(kind, seed, world, count, dtype)
    results = threads.run(
        world,
        lambda comm: comm.all_reduce(inputs[comm.rank], op=op, factor=FACTOR),
        _options(block, scale, segment, format=element),
    )
    if world == 1:
        # A copy, but for PREMUL_SUM, whose factor is the caller's.
        by = np.float32(FACTOR) if op == "premul_sum" else np.float32(1)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = oracle.round_to(as_float32(inputs[0]) * by, dtype)
    else:
        expected = oracle.all_reduce(
            [as_float32(x) for x in inputs], dtype, op, FACTOR, block, scale, element
        )
    for result in results:
        assert bits(result) == bits(_as_tensor(expected, dtype))


@settings(max_examples=100)
@given(
    worlds, some.kinds, some.seeds, st.lists(st.integers(0, 900), min_size=5),
    some.dtypes, some.elements, some.blocks, some.scales, ops, st.sampled_from([1, 100, 65536]),
)  # fmt: skip
def test_reduce_scatter_equals_the_oracle(
    world, kind, seed, sizes, dtype, element, block, scale, op, segment
):
    inputs = [
        [numbers(kind, seed + 10 * r + o, sizes[o], dtype) for o in range(world)]
        for r in range(world)
    ]
    results = threads.run(
        world,
        lambda comm: comm.reduce_scatter(inputs[comm.rank], op=op, factor=FACTOR),
        _options(block, scale, segment, format=element),
    )
    expected = oracle.reduce_scatter(
        [[as_float32(x) for x in row] for row in inputs], dtype, op, FACTOR, block, scale, element
    )
    for result, right in zip(results, expected, strict=True):
        assert bits(result) == bits(_as_tensor(right, dtype))


@settings(max_examples=60)
@given(
    worlds, some.kinds, some.seeds, st.lists(st.integers(0, 900), min_size=5),
    some.dtypes, some.blocks, st.sampled_from([1, 100, 65536]),
)  # fmt: skip
def test_all_gather_equals_the_oracle(world, kind, seed, sizes, dtype, block, segment):
    inputs = [numbers(kind, seed + r, sizes[r], dtype) for r in range(world)]
    results = threads.run(
        world,
        lambda comm: comm.all_gather(inputs[comm.rank], counts=sizes[:world]),
        _options(block, segment=segment, quantize=("all_gather",)),
    )
    # One rank copies.
    seen = [as_float32(x) if world == 1 else oracle.roundtrip(as_float32(x), block) for x in inputs]
    expected = [oracle.round_to(x, dtype) for x in seen]
    for result in results:
        for part, right in zip(result, expected, strict=True):
            assert bits(part) == bits(_as_tensor(right, dtype))


@settings(max_examples=40)
@given(worlds, some.finite_kinds, some.seeds, counts, some.blocks, some.scales)
def test_error_against_fp64_is_half_a_step_an_encoding(world, kind, seed, count, block, scale):
    inputs = _inputs(kind, seed, world, count, "float32")
    result = threads.run(
        world, lambda comm: comm.all_reduce(inputs[comm.rank]), _options(block, scale)
    )[0]
    exact = sum(x.double().numpy() for x in inputs)
    bounds = oracle.chunk_bounds(count, world, block)
    allowed = np.empty(count)
    for owner in range(world):
        chunk = slice(bounds[owner], bounds[owner + 1])
        pieces = [as_float32(x[chunk]) for x in inputs]
        first = sum(oracle.half_steps(p, block, scale) for r, p in enumerate(pieces) if r != owner)
        # The encoded sum differs from the exact one by `first` at most, and so may its scale.
        largest = np.abs(exact[chunk]) + first
        second = oracle.half_steps(largest.astype(np.float32), block, scale)
        rounding = world * 2.0**-24 * sum(np.abs(p).astype(np.float64) for p in pieces)
        allowed[chunk] = first + second * (1 + 2.0**-20) + rounding + 2.0**-126
    assert (np.abs(result.double().numpy() - exact) <= allowed).all()


@pytest.mark.parametrize("world,expected", [(2, 0.0080), (4, 0.0086)])
def test_l2_error_is_that_of_the_documentation(world, expected):
    inputs = _inputs("normal", 1, world, 1 << 19, "float32")
    result = threads.run(world, lambda comm: comm.all_reduce(inputs[comm.rank]))[0]
    exact = sum(x.double() for x in inputs)
    assert float((result - exact).norm() / exact.norm()) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("slow", range(3))
def test_the_result_does_not_depend_on_who_is_slow(slow):
    inputs = _inputs("normal", 2, 3, 100_000, "float32")

    def reduce(comm):
        time.sleep(0.1 * (comm.rank == slow))
        return comm.all_reduce(inputs[comm.rank])

    expected = oracle.all_reduce([as_float32(x) for x in inputs], "float32")
    for result in threads.run(3, reduce):
        assert bits(result) == bits(torch.from_numpy(expected))


def test_stochastic_calls_differ_between_calls_and_repeat_between_groups():
    inputs = _inputs("normal", 3, 2, 20_000, "float32")

    def three(comm):
        return [comm.all_reduce(inputs[comm.rank]) for _ in range(3)]

    def group(seed):
        return threads.run(2, three, agoq_comm.Options(rounding="stochastic", seed=seed))

    first, again, other = group(7), group(7), group(8)
    for a, b in zip(first[0], again[0], strict=True):
        assert torch.equal(a, b)
    for a, b in zip(first[0], first[1], strict=True):
        assert torch.equal(a, b), "the ranks of one group must agree"
    assert not torch.equal(first[0][0], first[0][1])
    assert not torch.equal(first[0][0], other[0][0])


def test_stochastic_all_reduce_is_unbiased():
    """The mean of 400 calls is nearer to the exact sum than any call, as 1/sqrt(400) says."""
    inputs = _inputs("normal", 4, 2, 1024, "float32")
    exact = (inputs[0] + inputs[1]).double()
    options = _options(rounding="stochastic", seed=1)
    calls = 400
    rows = threads.run(
        2, lambda comm: [comm.all_reduce(inputs[comm.rank]) for _ in range(calls)], options
    )[0]
    each = float((rows[0] - exact).norm())
    mean = float((torch.stack(rows).double().mean(0) - exact).norm())
    assert mean < 1.2 * each / calls**0.5


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64, torch.uint8])
def test_other_dtypes_are_summed_exactly(dtype):
    results = threads.run(
        3, lambda comm: comm.all_reduce(torch.full((5000,), comm.rank + 1).to(dtype))
    )
    for result in results:
        assert torch.equal(result, torch.full((5000,), 6).to(dtype))


@pytest.mark.parametrize("op,expected", [("min", 1), ("max", 3), ("product", 6)])
def test_other_ops_are_exact(op, expected):
    results = threads.run(
        3, lambda comm: comm.all_reduce(torch.full((40_000,), comm.rank + 1.0), op=op)
    )
    assert all((result == expected).all() for result in results)


def test_exact_sums_of_bf16_are_taken_in_fp32():
    """256 + 1 + 1 + 1 + 1 in bf16 steps of 2 stays 256; in fp32 it is 260."""
    start = [256.0, 1.0, 1.0, 1.0, 1.0]
    results = threads.run(
        5, lambda comm: comm.all_reduce(torch.full((10,), start[comm.rank], dtype=torch.bfloat16))
    )
    assert all((result == 260).all() for result in results)


def test_in_place():
    inputs = _inputs("normal", 5, 3, 50_000, "float32")

    def reduce(comm):
        x = inputs[comm.rank].clone()
        assert comm.all_reduce(x, out=x) is x
        return x

    expected = oracle.all_reduce([as_float32(x) for x in inputs], "float32")
    for result in threads.run(3, reduce):
        assert bits(result) == bits(torch.from_numpy(expected))


def test_errors_say_what_is_wrong():
    comm = agoq_comm.inproc_group(2)[0]
    with pytest.raises(ValueError, match="out must be"):
        comm.all_reduce(torch.ones(3), out=torch.ones(4))
    with pytest.raises(ValueError, match="2 arrays of one dtype"):
        comm.reduce_scatter([torch.ones(3)])
    with pytest.raises(ValueError, match=r"unknown reduce op 'mean'.*avg"):
        comm.all_reduce(torch.ones(3), op="mean")
    with pytest.raises(TypeError, match="float8"):
        comm.all_reduce(torch.ones(3).to(torch.float8_e4m3fn))
    with pytest.raises(ValueError, match="size"):
        agoq_comm.inproc_group(0)


MISMATCHES = {
    "101": lambda c: c.all_reduce(torch.ones(101)),
    "float16": lambda c: c.all_reduce(torch.ones(100).half()),
    "max": lambda c: c.all_reduce(torch.ones(100), op="max"),
    "all_gather": lambda c: c.all_gather(torch.ones(100)),
}


@pytest.mark.parametrize("words", MISMATCHES)
def test_a_mismatch_names_both_ranks_and_what_differs(words):
    seen = {}

    def call(comm):
        try:
            if comm.rank == 0:
                comm.all_reduce(torch.ones(100))
            else:
                MISMATCHES[words](comm)
        except RuntimeError as error:
            seen[comm.rank] = str(error)

    threads.run(2, call, timeout=10)
    assert sorted(seen) == [0, 1], "both ranks must notice"
    for message in seen.values():
        assert words in message, message
        assert "rank 0" in message and "rank 1" in message, message


def test_a_missing_rank_times_out_and_later_calls_fail_at_once():
    def call(comm):
        if comm.rank == 1:
            return
        with pytest.raises(RuntimeError, match=r"(?s)all_reduce.*rank 1|rank 1.*all_reduce"):
            comm.all_reduce(torch.ones(50_000))
        with pytest.raises(RuntimeError, match="this group has failed and must be made anew"):
            comm.all_reduce(torch.ones(50_000))

    threads.run(2, call, timeout=1)


def test_abort_ends_a_running_call():
    def call(comm):
        if comm.rank == 1:
            time.sleep(0.3)
            comm.abort("the user pressed stop")
            return
        with pytest.raises(RuntimeError, match="the user pressed stop"):
            comm.all_reduce(torch.ones(50_000))

    threads.run(2, call)


def test_stats_count_calls_and_bytes():
    def call(comm):
        comm.all_reduce(torch.ones(131_072))
        comm.all_reduce(torch.ones(10))
        stats = comm.stats()["all_reduce"]
        comm.reset_stats()
        return stats, comm.stats(), comm.describe()

    for stats, after, text in threads.run(2, call):
        assert stats["quantized_calls"] == 1 and stats["exact_calls"] == 1
        assert stats["exact_by_reason"] == {"small": 1}
        assert stats["elements"] == 131_082
        # Each rank sends half the buffer encoded, twice, and the small one exactly.
        quantized = 131_072 * (1 + 2 / 128)
        assert quantized <= stats["wire_bytes"] <= quantized + 400
        assert after == {}
        assert "inproc" in text and "int8/128/bf16" in text
