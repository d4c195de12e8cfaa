"""Sequence parallelism on a device whose streams run when they like: the CPU's bits, and its order.

Torch's operators on the fake device compute what the CPU's do, so that all of it can be compared.
"""

from __future__ import annotations

import functools
import time
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
from device_fake import BACKEND, HIGH_PRIORITY, fake
from programs import sequence_cases as cases
from programs.common import data, equal
from programs.device import Held, captured, first, log_of, on_device_unwaited
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
def products_run_beside_the_collectives_of_the_way_back(me: Rank) -> None:
    """The caller's stream waits for a collective only after a product that does not need it."""
    x = data(me.rank, ROWS, WIDTH).to("fake").requires_grad_()
    layer = sp.ColumnParallelLinear(nn.Linear(WIDTH, 32 * me.size, bias=False)).to("fake")
    y = layer(x)
    gradient = torch.ones_like(y)
    fake.synchronize()
    with Held():
        _, log = log_of(y.backward, gradient)
    assert "host waits" not in whats(log), log
    own = next(e[1] for e in log if e[0] == "decode_rows")
    assert own in HIGH_PRIORITY
    products = [i for i, e in enumerate(log) if e[:2] == ("mm", 0)]
    waits = [i for i, e in enumerate(log) if e[:2] == ("block", 0)]
    gather, scatter = first(log, "decode_rows", own), first(log, "sum_rows", own)
    assert len(products) == len(waits) == 2, log
    # The product for the input's gradient, while the input is gathered; then the weight's, which
    # needs the input and so waits for it, while the gradient is reduce-scattered.
    assert gather < products[0] < waits[0] < scatter < products[1] < waits[1], log


@checks
def a_trace_shows_products_while_collectives_are_under_way(me: Rank) -> None:
    """The group's stream is stopped within each collective until a product has run."""
    x = data(me.rank, ROWS, WIDTH).to("fake").requires_grad_()
    layer = sp.ColumnParallelLinear(nn.Linear(WIDTH, 32 * me.size, bias=False)).to("fake")
    y = layer(x)
    gradient = torch.ones_like(y)
    _, log = log_of(sp.gather_from_sequence_parallel_region, x.detach())
    own = log[first(log, "decode_rows")][1]
    fake.synchronize()
    fake.trace(True)
    try:
        fake.hold_before(own, "decode_rows")
        y.backward(gradient)
        trace = traced_until([("mm", 0)])
        fake.hold_before(own, "encode_rows")
        trace += traced_until([("decode_rows", own), ("mm", 0)])
    finally:
        fake.hold_before(own, "")
    fake.synchronize()
    trace += fake.take_trace()
    fake.trace(False)
    ran = [span[:2] for span in trace if span[0] in KERNELS or span[0] == "mm"]
    gathered = [("decode_rows", own)] * ran.count(("decode_rows", own))
    scattered = [("encode_rows", own)] * (me.size - 1) + [("sum_rows", own)]
    assert ran == [("mm", 0), *gathered, ("mm", 0), *scattered], ran
    assert all(span[2] <= span[3] for span in trace)


def traced_until(wanted: list[tuple[str, int]]) -> list:
    """What streams have done, once all that is wanted is among it."""
    trace: list = []
    deadline = time.monotonic() + 20
    while not {(what, stream) for what, stream, *_ in trace}.issuperset(wanted):
        assert time.monotonic() < deadline, (wanted, trace)
        time.sleep(0.001)
        trace += fake.take_trace()
    return trace


@checks
def the_host_waits_for_nothing(me: Rank) -> None:
    inputs = [x.to("fake") for x in normed_inputs(me)]
    right = [x.cpu() for x in fused(inputs)]  # What a group makes at its first call is made here.
    with Held():
        results, log = log_of(fused, inputs)
    assert {"host waits", "query"}.isdisjoint(whats(log)), log
    for actual, expected in zip(results, right, strict=True):
        equal(actual.cpu(), expected)


def fused(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    sums, normed = sp.reduce_scatter_norm(*inputs)
    return [sums, *normed, sp.gather_normed(normed)]


@checks
def inputs_may_go_away_at_once(me: Rank) -> None:
    right = fused([x.clone() for x in normed_inputs(me)])
    fused([x.to("fake") for x in normed_inputs(me)])
    term, residual, weight = normed_inputs(me)
    with Held():
        inputs = [on_device_unwaited(x) for x in (term, residual, weight)]
        sums, normed, encoded = (on_device_unwaited(torch.zeros_like(x)) for x in right[:3])
        epilogue = _C.RowEpilogue(
            residual=inputs[1], weight=inputs[2], epsilon=1e-5, normed=normed, encoded=encoded
        )
        arguments = (sums, inputs[0], [ROWS] * me.size, True, epilogue)
        work, log = log_of(_backend_of(None).reduce_scatter_rows, *arguments)
        own = log[first(log, "sum_rows")][1]
        used = {e[2] for e in log if e[:2] == ("record_stream", own)}
        assert used == {x.data_ptr() for x in (*inputs, sums, normed, encoded)}, log
        # Their memory is overwritten as soon as the allocator may think that nobody reads it.
        del inputs, epilogue, arguments
    work.wait()
    for actual, expected in zip((sums, normed, encoded), right, strict=False):
        equal(actual.cpu(), expected)


@checks
def calls_follow_the_streams_they_were_made_on(me: Rank) -> None:
    right = fused([x.clone() for x in normed_inputs(me)])
    for seed in range(3):
        fake.set_delays(seed + me.rank, 500)
        torch_stream = fake.use_stream(2)
        results = [x.cpu() for x in fused([on_device_unwaited(x) for x in normed_inputs(me)])]
        fake.use_stream(torch_stream)
        for actual, expected in zip(results, right, strict=True):
            equal(actual, expected)
    fake.set_delays(0, 0)


@checks
def a_graph_reads_its_inputs_anew(me: Rank) -> None:
    term, residual, weight = (x.to("fake") for x in normed_inputs(me))
    right = fused([x.clone() for x in normed_inputs(me)])
    sums, normed, encoded, whole = (torch.zeros_like(x).to("fake") for x in right)
    again = torch.zeros_like(normed)
    backend, rows = _backend_of(None), [ROWS] * me.size

    def call() -> None:
        common = {"weight": weight, "epsilon": 1e-5}
        epilogue = _C.RowEpilogue(residual=residual, normed=normed, encoded=encoded, **common)
        backend.reduce_scatter_rows(sums, term, rows, True, epilogue).wait()
        backend.all_gather_encoded_rows(whole, encoded, rows).wait()
        backend.finish_rows(sums, None, _C.RowEpilogue(normed=again, **common))

    call()
    graph, log = log_of(captured, call)
    assert {"allocate", "query", "host waits"}.isdisjoint(whats(log)), log
    for factor in (2, 3):
        fresh = [factor * x for x in normed_inputs(me)]
        for to, x in zip((term, residual, weight), fresh, strict=True):
            to.copy_(x)
        fake.replay(graph, 0)
        for actual, expected in zip((sums, normed, encoded, whole), fused(fresh), strict=True):
            equal(actual.cpu(), expected)
        equal(again.cpu(), normed.cpu())


@checks
def a_graph_takes_no_draws_of_stochastic_rounding(me: Rank) -> None:
    group = group_with(rounding="stochastic")
    term, residual, weight = (x.to("fake") for x in normed_inputs(me))
    sums, normed = sp.reduce_scatter_norm(term, residual, weight, group=group)
    backend, rounding = _backend_of(group), _C.Rounding()
    rounding.stochastic = True
    epilogue = _C.RowEpilogue(encoded=normed.encoded, rounding=rounding)
    refused: list[str] = []

    def call() -> None:
        for refuse in (
            lambda: backend.finish_rows(residual, None, epilogue),
            lambda: backend.reduce_scatter_rows(sums, term, [ROWS] * me.size, True, epilogue),
        ):
            try:
                refuse()
            except NotImplementedError as error:
                refused.append(str(error))

    captured(call)
    assert len(refused) == 2 and all("stochastic rounding" in words for words in refused), refused
    sp.gather_normed(normed, group)  # The group is as sound as before.


@checks
def calls_between_start_and_end_of_coalescing(me: Rank) -> None:
    right = fused([x.clone() for x in normed_inputs(me)])
    term, residual, weight = (x.to("fake") for x in normed_inputs(me))
    sums, normed = torch.zeros_like(residual), torch.zeros_like(residual)
    whole = torch.zeros_like(term)
    backend, rows = _backend_of(None), [ROWS] * me.size
    group, device = dist.group.WORLD, torch.device("fake")
    group._start_coalescing(device)
    epilogue = _C.RowEpilogue(residual=residual, weight=weight, epsilon=1e-5, normed=normed)
    assert backend.reduce_scatter_rows(sums, term, rows, True, epilogue) is None
    assert backend.all_gather_rows(whole, normed, rows, True) is None
    group._end_coalescing(device).wait()
    for actual, expected in zip((sums, normed), right, strict=False):
        equal(actual.cpu(), expected)
    equal(whole.cpu(), right[3])


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
    try:
        _backend_of(group).finish_rows(x, x, _C.RowEpilogue(residual=x))
    except ValueError as error:
        assert "the group is larger than they take" in str(error), error
    else:
        raise AssertionError("rows were finished without kernels")


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
            lambda: backend.reduce_scatter_rows(part, on_it, rows, False, nothing),
            "reduce_scatter",
        ),
    )
    for call, words in cases_of:
        try:
            call()
        except (ValueError, RuntimeError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"nothing said {words!r}")
    # The group is as sound as before.
    equal(sp.rms_norm(part, weight).values.cpu(), part.cpu())
    gathered = sp.gather_from_sequence_parallel_region(part)
    equal(gathered.cpu(), x)
