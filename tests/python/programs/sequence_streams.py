"""In which order sequence parallelism asks a device for its work, and what may happen meanwhile."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn

from agoq_comm import _C
from agoq_comm import sequence_parallel as sp
from agoq_comm._groups import _backend_of
from checks import Checks
from device_fake import HIGH_PRIORITY, fake
from programs import sequence_device
from programs.common import data, equal
from programs.device import Held, captured, first, log_of, on_device_unwaited
from programs.sequence_device import KERNELS, ROWS, WIDTH, fused, group_with, normed_inputs, whats
from ranks import Rank

checks = Checks()
prepare = sequence_device.prepare
INIT = sequence_device.INIT


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
