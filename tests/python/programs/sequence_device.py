"""Sequence parallelism on a device gives the CPU's bits, by fused calls and no encoding twice.

Torch's operators on the fake device compute what the CPU's do, so that all of it can be compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

import agoq_comm
import device_fake
from agoq_comm import _C
from agoq_comm import sequence_parallel as sp
from agoq_comm._groups import _backend_of
from agoq_comm.sequence_parallel import exchange
from checks import Checks
from device_fake import BACKEND, fake
from programs import sequence_cases as cases
from programs.common import data, equal, refused
from programs.device import log_of
from ranks import Rank

checks = Checks()
EVERYTHING = ("all_reduce", "reduce_scatter", "all_gather")
INIT = {"pg_options": agoq_comm.Options(quantize=EVERYTHING, min_numel=0)}
ROWS, WIDTH = 12, 200
ENCODINGS = {"encode", "encode_rows", "apply_rows", "sum_encode"}
KERNELS = ENCODINGS | {"decode", "decode_rows", "sum_decode", "sum_rows"}


def prepare(me: Rank) -> None:
    device_fake.load(me)
    device_fake.load_codec()


@functools.cache
def group_with(quantize: tuple[str, ...] = EVERYTHING, **options) -> dist.ProcessGroup:
    chosen = agoq_comm.Options(quantize=quantize, min_numel=0, **options)
    return dist.new_group(backend=BACKEND, pg_options=chosen)


def on_both(me: Rank, run: Callable[[cases.Case], cases.Tensors], **of_case) -> None:
    """Run on both devices and compare to the bit."""
    case = {"group": None, "policy": sp.QuantizationPolicy(), **of_case}
    on_cpu = run(cases.Case(me.rank, me.size, "cpu", **case))
    on_device = run(cases.Case(me.rank, me.size, "fake", **case))
    assert len(on_cpu) == len(on_device)
    for right, actual in zip(on_cpu, on_device, strict=True):
        assert actual.device.type == "fake"
        equal(actual.cpu(), right)


def whats(log: list) -> list[str]:
    return [entry[0] for entry in log]


def normed_inputs(me: Rank, rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Term, residual and weight, on the CPU."""
    term = data(me.rank, rows * me.size, WIDTH)
    return term, data(me.rank, rows, WIDTH, seed=1), 1 + data(9, WIDTH) / 4


def fused(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    sums, normed = sp.reduce_scatter_norm(*inputs)
    return [sums, *normed, sp.gather_normed(normed)]


@checks
def functions_equal_those_of_the_cpu(me: Rank) -> None:
    for dtype in cases.DTYPES:
        for width in cases.WIDTHS:
            on_both(me, cases.of_functions, dtype=dtype, width=width)


@checks
def functions_equal_those_of_the_cpu_whatever_the_policy(me: Rank) -> None:
    for policy in cases.POLICIES[1:]:
        on_both(me, cases.of_functions, policy=policy, dtype=torch.bfloat16)


@checks
def functions_of_a_group_that_quantizes_less_equal_those_of_the_cpu(me: Rank) -> None:
    for width in cases.WIDTHS:
        on_both(me, cases.of_functions, width=width, group=group_with(("all_reduce",)))


@checks
def a_sequence_that_has_no_rows(me: Rank) -> None:
    """The group would quantize however few elements, but these are none."""
    weight = torch.ones(WIDTH, device="fake")
    for group in (None, group_with(("all_reduce",))):
        x = torch.zeros(0, WIDTH, device="fake", requires_grad=True)
        y = sp.reduce_scatter_to_sequence_parallel_region(x, group)
        y.backward(y)
        sums, normed = sp.reduce_scatter_norm(x, x, weight, group=group)
        whole = sp.gather_normed(normed, group)
        assert all(empty.shape == (0, WIDTH) for empty in (x.grad, y, sums, whole))


@checks
def encoded_bytes_are_sent_from_any_address(me: Rank) -> None:
    normed = sp.rms_norm(data(me.rank, ROWS, WIDTH), torch.ones(WIDTH))
    memory = torch.zeros(normed.encoded.numel() + 1, dtype=torch.uint8).to("fake")
    memory[1:].copy_(normed.encoded)
    whole = torch.zeros(ROWS * me.size, WIDTH, device="fake")
    _backend_of(None).all_gather_encoded_rows(whole, memory[1:], [ROWS] * me.size).wait()
    equal(whole.cpu(), sp.gather_normed(normed))


@checks
def norms_equal_those_of_the_cpu(me: Rank) -> None:
    for dtype in cases.DTYPES:
        for width in cases.WIDTHS:
            for policy in cases.POLICIES:
                on_both(me, cases.of_norms, dtype=dtype, width=width, policy=policy)


@checks
def layers_equal_those_of_the_cpu(me: Rank) -> None:
    for policy in cases.POLICIES:
        on_both(me, cases.of_layers, policy=policy)
    on_both(me, cases.of_layers, dtype=torch.bfloat16, width=256)


@checks
def rounding_at_random_draws_what_the_cpu_draws(me: Rank) -> None:
    """Of calls that are numbered alike: in a group that serves nothing else."""
    results = []
    for device in ("cpu", "fake"):
        chosen = agoq_comm.Options(rounding="stochastic", seed=5, min_numel=0)
        group = dist.new_group(backend=BACKEND, pg_options=chosen)
        case = cases.Case(me.rank, me.size, device, group, sp.QuantizationPolicy())
        results.append(cases.of_norms(case))
    for right, actual in zip(*results, strict=True):
        equal(actual.cpu(), right)


@checks
def a_fused_sum_is_one_call_and_one_kernel(me: Rank) -> None:
    inputs = [x.to("fake") for x in normed_inputs(me)]
    agoq_comm.reset_stats()
    (_, normed), log = log_of(sp.reduce_scatter_norm, *inputs)
    assert normed.encoded.numel() > 0
    stats = agoq_comm.stats()
    assert set(stats) == {"reduce_scatter"}, stats
    assert stats["reduce_scatter"]["calls"] == stats["reduce_scatter"]["quantized_calls"] == 1
    assert whats(log).count("sum_rows") == 1, log
    # What is encoded are the pieces that go to the peers.
    assert KERNELS & set(whats(log)) <= {"encode_rows", "encode", "sum_rows"}, log


@checks
def rows_of_several_segments_equal_those_of_the_cpu(me: Rank) -> None:
    inputs = normed_inputs(me, rows=11_000)
    right = fused([x.clone() for x in inputs])
    results, log = log_of(fused, [x.to("fake") for x in inputs])
    assert whats(log).count("sum_rows") > 1, "one segment took it all"
    for actual, expected in zip(results, right, strict=True):
        equal(actual.cpu(), expected)


@checks
def an_exact_sum_is_finished_in_one_kernel(me: Rank) -> None:
    inputs = [x.to("fake") for x in normed_inputs(me)]
    _, log = log_of(sp.reduce_scatter_norm, *inputs, policy=sp.EXACT)
    assert [what for what in whats(log) if what in KERNELS] == ["apply_rows"], log


@checks
def what_the_norm_encoded_is_encoded_no_second_time(me: Rank) -> None:
    x = data(me.rank, ROWS, WIDTH).to("fake")
    linear = nn.Linear(WIDTH, 32 * me.size, bias=False)
    policy = sp.QuantizationPolicy(backward=False)
    layer = sp.ColumnParallelLinear(linear, policy=policy).to("fake")
    normed, log = log_of(sp.rms_norm, x, torch.ones(WIDTH, device="fake"))
    assert [what for what in whats(log) if what in KERNELS] == ["apply_rows"], log
    normed = sp.Normed(normed.values.requires_grad_(), normed.encoded)
    agoq_comm.reset_stats()

    def both_ways() -> None:
        y = layer(normed)
        y.backward(torch.ones_like(y))

    _, log = log_of(both_ways)
    assert "decode_rows" in whats(log) and not ENCODINGS & set(whats(log)), log
    stats = agoq_comm.stats()["all_gather"]
    assert stats["calls"] == stats["quantized_calls"] == 2, stats
    assert stats["wire_bytes"] == 2 * (me.size - 1) * normed.encoded.numel()


@checks
def a_layers_input_is_encoded_once(me: Rank) -> None:
    x = data(me.rank, ROWS, WIDTH).to("fake").requires_grad_()
    linear = nn.Linear(WIDTH, 32 * me.size, bias=False)
    layer = sp.ColumnParallelLinear(linear, policy=sp.QuantizationPolicy(backward=False)).to("fake")

    def both_ways() -> None:
        y = layer(x)
        y.backward(torch.ones_like(y))

    _, log = log_of(both_ways)
    assert [what for what in whats(log) if what in ENCODINGS] == ["apply_rows"], log


@checks
def over_host_memory_the_bits_are_the_same(me: Rank) -> None:
    group = group_with(device_transport="host")
    on_both(me, cases.of_norms, group=group)
    assert "staging" in agoq_comm.describe(group)


@checks
def rows_are_finished_in_a_group_that_no_call_has_used(me: Rank) -> None:
    x = data(me.rank, ROWS, WIDTH)
    group = dist.new_group(backend=BACKEND)
    normed = sp.rms_norm(x.to("fake"), torch.ones(WIDTH, device="fake"), group=group)
    equal(normed.values.cpu(), sp.rms_norm(x, torch.ones(WIDTH), group=group).values)


@checks
def a_group_of_more_ranks_than_the_kernels_take_goes_step_by_step(me: Rank) -> None:
    fake.set_max_ranks(me.size - 1)
    group = group_with(seed=1)
    fake.set_max_ranks(256)
    x = torch.zeros(ROWS, WIDTH, device="fake")
    assert exchange.core_has_rows(x, dist.group.WORLD)
    assert not exchange.core_has_rows(x, group)
    assert exchange.core_has_rows(x.cpu(), group)
    inputs = normed_inputs(me)
    right = sp.reduce_scatter_norm(*inputs, group=group)[1]
    on_it = [x.to("fake") for x in inputs]
    (_, normed), log = log_of(sp.reduce_scatter_norm, *on_it, group=group)
    assert {"sum_rows", "apply_rows", "encode_rows"}.isdisjoint(whats(log)), log
    torch.testing.assert_close(normed.values.cpu(), right.values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        sp.gather_normed(normed, group).cpu(), sp.gather_normed(right, group), rtol=0, atol=0.1
    )
    with refused("the group is larger than they take", ValueError):
        _backend_of(group).finish_rows(x, x, _C.RowEpilogue(residual=x))


@checks
def mistakes_are_named(me: Rank) -> None:
    x, part = torch.zeros(2 * me.size, 8), torch.zeros(2, 8, device="fake")
    on_it, weight = x.to("fake"), torch.ones(8, device="fake")
    backend, rows = _backend_of(None), [2] * me.size
    nothing = _C.RowEpilogue()
    cases_of = (
        (lambda: sp.reduce_scatter_norm(on_it, part.cpu(), weight), "`output` is on cpu"),
        (
            lambda: sp.reduce_scatter_norm(on_it, part, weight.cpu()),
            "`weight` is on cpu, but must be where the rows are, on fake:0",
        ),
        (lambda: sp.rms_norm(part, torch.ones(7, device="fake")), "`weight` must be 8"),
        (lambda: backend.all_gather_rows(on_it, part.cpu(), rows, True), "`input` is on cpu"),
        (
            lambda: backend.all_gather_encoded_rows(on_it, torch.zeros(4, dtype=torch.uint8), rows),
            "`encoded` is on cpu",
        ),
        (lambda: backend.finish_rows(part, part.cpu(), nothing), "`output` is on cpu"),
        (
            lambda: backend.finish_rows(part, part, _C.RowEpilogue(weight=weight)),
            "needs an `epsilon`",
        ),
        (
            lambda: backend.reduce_scatter_rows(part, on_it, rows, False, nothing),
            "reduce_scatter",
        ),
    )
    for call, words in cases_of:
        with refused(words):
            call()
    # The group is as sound as before.
    equal(sp.rms_norm(part, weight).values.cpu(), part.cpu())
    gathered = sp.gather_from_sequence_parallel_region(part)
    equal(gathered.cpu(), x)
