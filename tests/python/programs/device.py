"""Checks of the backend on tensors of a device whose streams run when they like."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

import agoq_comm
from checks import Checks
from device_fake import BACKEND, HIGH_PRIORITY, fake, load
from programs.common import LARGE, data, equal
from ranks import Rank

checks = Checks()
prepare = load
INIT = {
    "pg_options": agoq_comm.Options(quantize=("all_reduce", "reduce_scatter", "all_gather")),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def on_device(x: torch.Tensor) -> torch.Tensor:
    return x.to("fake")


def log_of(call, *arguments, **keywords):
    """What `call` returns, and the log of what it asked of the device."""
    fake.take_log()
    result = call(*arguments, **keywords)
    return result, fake.take_log()


def first(log, what, stream=None) -> int:
    """Position of the first such entry."""
    return next(i for i, e in enumerate(log) if e[0] == what and stream in (None, e[1]))


class Held:
    """While it lasts, no stream does anything."""

    def __enter__(self) -> None:
        fake.hold(True)

    def __exit__(self, *_: object) -> None:
        fake.hold(False)


def reduced_on_cpu(x: torch.Tensor, op=dist.ReduceOp.SUM) -> torch.Tensor:
    result = x.clone()
    dist.all_reduce(result, op)
    return result


@checks
def all_reduce_equals_the_cpu(me: Rank) -> None:
    for dtype in DTYPES:
        for count in (16_384, LARGE, 300_001):
            for op in (
                dist.ReduceOp.SUM,
                dist.ReduceOp.AVG,
                dist._make_nccl_premul_sum(0.3),
            ):
                x = data(me.rank, count, dtype=dtype)
                on_it = on_device(x)
                dist.all_reduce(on_it, op)
                equal(on_it.cpu(), reduced_on_cpu(x, op))


@checks
def reduce_scatter_equals_the_cpu(me: Rank) -> None:
    for dtype in DTYPES:
        for count in (16_384, LARGE):
            x = data(me.rank, count * me.size, dtype=dtype)
            expected = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(expected, x)
            out = on_device(torch.empty(count, dtype=dtype))
            dist.reduce_scatter_tensor(out, on_device(x))
            equal(out.cpu(), expected)


@checks
def lists_of_uneven_sizes_equal_the_cpu(me: Rank) -> None:
    sizes = [LARGE + 1000 * rank for rank in range(me.size)]
    parts = [data(me.rank, size, seed=i) for i, size in enumerate(sizes)]
    expected = torch.empty(sizes[me.rank])
    dist.reduce_scatter(expected, parts)
    out = on_device(torch.empty(sizes[me.rank]))
    dist.reduce_scatter(out, [on_device(part) for part in parts])
    equal(out.cpu(), expected)
    expected_all = [torch.empty(size) for size in sizes]
    dist.all_gather(expected_all, expected)
    all_out = [on_device(torch.empty(size)) for size in sizes]
    dist.all_gather(all_out, out)
    for one, other in zip(all_out, expected_all, strict=True):
        equal(one.cpu(), other)


@checks
def all_gather_equals_the_cpu(me: Rank) -> None:
    for dtype in DTYPES:
        x = data(me.rank, LARGE, dtype=dtype)
        expected = torch.empty(LARGE * me.size, dtype=dtype)
        dist.all_gather_into_tensor(expected, x)
        out = on_device(torch.empty(LARGE * me.size, dtype=dtype))
        dist.all_gather_into_tensor(out, on_device(x))
        equal(out.cpu(), expected)


@checks
def several_tensors_in_one_call_equal_the_cpu(me: Rank) -> None:
    tensors = [data(me.rank, n, seed=n) for n in (20_000, 7, LARGE)]
    expected = [x.clone() for x in tensors]
    dist.all_reduce_coalesced(expected)
    on_it = [on_device(x) for x in tensors]
    dist.all_reduce_coalesced(on_it)
    for one, other in zip(on_it, expected, strict=True):
        equal(one.cpu(), other)


@checks
def coalesced_reduce_scatters_of_which_one_is_small(me: Rank) -> None:
    with_small = [data(me.rank, n * me.size, seed=n) for n in (20_000, 100, LARGE)]
    expected = [torch.empty(x.numel() // me.size) for x in with_small]
    for out, x in zip(expected, with_small, strict=True):
        dist.reduce_scatter_tensor(out, x)
    outs = [on_device(torch.empty_like(out)) for out in expected]
    with dist._coalescing_manager():
        for out, x in zip(outs, with_small, strict=True):
            dist.reduce_scatter_tensor(out, on_device(x))
    for one, other in zip(outs, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-6, atol=1e-6)


@checks
def calls_between_start_and_end_of_coalescing(me: Rank) -> None:
    group = dist.group.WORLD
    device = torch.device("fake")
    large, small = data(me.rank, LARGE), data(me.rank, 100)
    on_it, small_on_it = on_device(large), on_device(small)
    group._start_coalescing(device)
    assert group.allreduce([on_it], dist.AllreduceOptions()) is None
    assert group.allreduce([small_on_it], dist.AllreduceOptions()) is None
    group._end_coalescing(device).wait()
    equal(on_it.cpu(), reduced_on_cpu(large))
    torch.testing.assert_close(small_on_it.cpu(), reduced_on_cpu(small))


@checks
def memory_that_is_not_contiguous(me: Rank) -> None:
    x = data(me.rank, 300, 200)
    on_it = on_device(x).t()
    dist.all_reduce(on_it)
    equal(on_it.cpu(), reduced_on_cpu(x.t().contiguous()))


@checks
def exact_calls_go_to_the_inner_backend(me: Rank) -> None:
    agoq_comm.reset_stats()
    for x in (torch.ones(100), torch.ones(LARGE, dtype=torch.int32)):
        on_it = on_device(x)
        dist.all_reduce(on_it)
        equal(on_it.cpu(), x * me.size)
    dist.all_reduce(on_device(torch.ones(LARGE)))
    counters = agoq_comm.stats()["all_reduce"]
    assert counters["quantized_calls"] == 1
    assert counters["exact_by_reason"] == {"small": 1, "data type": 1}, counters
    assert counters["wire_bytes"] > 0


@checks
def streams_wait_for_each_other_and_the_host_for_none(me: Rank) -> None:
    x = on_device(data(me.rank))
    dist.all_reduce(x)  # What a group makes at its first call is not part of a call.
    x = on_device(data(me.rank))
    with Held():
        work, log = log_of(dist.all_reduce, x, async_op=True)
        assert not work.is_completed()
        _, at_wait = log_of(work.wait)
    own = log[first(log, "encode")][1]
    assert own in HIGH_PRIORITY
    start = log[first(log, "record", 0)]
    assert ("block", own, start[2]) in log[: first(log, "encode")]
    assert {e[0] for e in log} & {"host waits", "query"} == set(), log
    (waited,) = [e for e in at_wait if e[0] == "block"]
    assert waited[1] == 0, "wait() is for the caller's stream"
    end = log.index(("record", own, waited[2]))
    work_of_call = [
        i for i, e in enumerate(log) if e[0] in ("encode", "exchange", "sum_encode", "decode")
    ]
    assert max(work_of_call) < end and len({log[i][0] for i in work_of_call}) == 4, log
    equal(x.cpu(), reduced_on_cpu(data(me.rank)))
    deadline = time.monotonic() + 10
    while not work.is_completed():
        assert time.monotonic() < deadline
    assert work.is_success()


@checks
def a_call_follows_the_stream_it_was_made_on(me: Rank) -> None:
    # The number is written by stream 2, late; only who waits for stream 2 sees it.
    fake.set_delays(1, 3000)
    x = on_device(torch.zeros(LARGE))
    torch_stream = fake.use_stream(2)
    x.copy_(data(me.rank), non_blocking=True)
    dist.all_reduce(x)
    result = x.cpu()
    fake.use_stream(torch_stream)
    fake.set_delays(0, 0)
    equal(result, reduced_on_cpu(data(me.rank)))


@checks
def many_calls_in_flight_under_delays(me: Rank) -> None:
    inputs = [data(me.rank, LARGE + i, seed=i) for i in range(6)]
    expected = [reduced_on_cpu(x) for x in inputs]
    for seed in range(4):
        fake.set_delays(seed + me.rank, 500)
        tensors = [on_device(x) for x in inputs]
        works = [dist.all_reduce(x, async_op=True) for x in tensors]
        for work in reversed(works):
            work.wait()
        for x, other in zip(tensors, expected, strict=True):
            equal(x.cpu(), other)
    fake.set_delays(0, 0)


@checks
def inputs_may_go_away_at_once(me: Rank) -> None:
    x = data(me.rank, LARGE * me.size)
    expected = torch.empty(LARGE)
    dist.reduce_scatter_tensor(expected, x)
    out = on_device(torch.empty(LARGE))
    with Held():
        source = on_device_unwaited(x)
        work, log = log_of(dist.reduce_scatter_tensor, out, source, async_op=True)
        own = log[first(log, "encode")][1]
        assert len([e for e in log if e[:2] == ("record_stream", own)]) == 2, log
        # Its memory is overwritten as soon as the allocator may think that nobody reads it.
        del source
    work.wait()
    equal(out.cpu(), expected)


def on_device_unwaited(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, device="fake").copy_(x, non_blocking=True)


@checks
def one_workspace_serves_all_calls(me: Rank) -> None:
    tensors = [on_device(data(me.rank, 2 * LARGE)) for _ in range(4)]
    for x in tensors:
        dist.all_reduce(x)

    def several() -> list:
        return [dist.all_reduce(x, async_op=True) for x in tensors]

    with Held():
        works, log = log_of(several)
    for work in works:
        work.wait()
    assert not [e for e in log if e[0] == "allocate"], log
    text = agoq_comm.describe()
    assert "workspace on fake:0: " in text and "MiB at most so far" in text, text


@checks
def futures_complete_in_stream_order(me: Rank) -> None:
    x = on_device(data(me.rank))
    work = dist.all_reduce(x, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0].cpu() * 2)
    result = work.get_future_result()
    equal(doubled.wait(), reduced_on_cpu(data(me.rank)) * 2)
    assert result.wait() == 0  # WorkResult.SUCCESS
    assert work.is_completed() and work.exception() is None


@checks
def a_timeout_of_wait_blocks_the_host(me: Rank) -> None:
    from datetime import timedelta

    x = on_device(data(me.rank))
    with Held():
        work = dist.all_reduce(x, async_op=True)
        message = ""
        try:
            work.wait(timedelta(milliseconds=50))
        except dist.DistBackendError as error:
            message = str(error)
    assert " Timed out after 50 ms in wait()" in message, message
    work.wait(timedelta(seconds=20))
    assert work.is_completed()


def captured(call):
    """The graph of `call` on stream 2."""
    before = fake.use_stream(2)
    fake.begin_capture(2)
    try:
        call()
    finally:
        graph = fake.end_capture(2)
        fake.use_stream(before)
    return graph


@checks
def a_graph_reads_its_inputs_anew(me: Rank) -> None:
    x = on_device(data(me.rank))
    dist.all_reduce(x)
    graph, log = log_of(captured, lambda: dist.all_reduce(x))
    assert not {e[0] for e in log} & {"allocate", "query", "host waits", "write value"}, log
    for seed in (1, 2, 3):
        fresh = data(me.rank, seed=seed)
        x.copy_(fresh)
        fake.replay(graph, 0)
        other = on_device(data(me.rank, seed=seed + 10))
        work, log = log_of(dist.all_reduce, other, async_op=True)
        # The graph has taken the workspace for itself: a call beside it must not meet it there.
        assert seed > 1 or [e for e in log if e[0] == "allocate"], log
        equal(x.cpu(), reduced_on_cpu(fresh))
        work.wait()
        equal(other.cpu(), reduced_on_cpu(data(me.rank, seed=seed + 10)))


@checks
def a_capture_without_a_call_before_it_says_so(me: Rank) -> None:
    x = on_device(data(me.rank, 40 * LARGE))
    group = dist.new_group(list(range(me.size)), backend=BACKEND)
    message = ""

    def call() -> None:
        nonlocal message
        try:
            dist.all_reduce(x, group=group)
        except ValueError as error:
            message = str(error)

    captured(call)
    assert "before the capture" in message, message
    dist.all_reduce(x, group=group)
    captured(lambda: dist.all_reduce(x, group=group))


@checks
def others_may_capture_while_calls_are_in_flight(me: Rank) -> None:
    x = on_device(data(me.rank))
    with Held():
        work, _ = log_of(dist.all_reduce, x, async_op=True)
        fake.begin_capture(3)
        time.sleep(0.35)  # The watch looks ten times a second.
        assert not work.is_completed()
        log = fake.take_log()
        fake.end_capture(3)
    assert not [e for e in log if e[0] in ("query", "host waits")], log
    work.wait()
    equal(x.cpu(), reduced_on_cpu(data(me.rank)))


@checks
def a_group_over_host_memory(me: Rank) -> None:
    for transport in ("auto", "gloo"):
        options = agoq_comm.Options(device_transport="host", transport=transport)
        group = dist.new_group(list(range(me.size)), backend=BACKEND, pg_options=options)
        x = on_device(data(me.rank))
        dist.all_reduce(x, group=group)
        equal(x.cpu(), reduced_on_cpu(data(me.rank)))
        with Held():
            y = torch.empty(LARGE, device="fake").copy_(data(me.rank, seed=5), non_blocking=True)
            work, log = log_of(dist.all_reduce, y, group=group, async_op=True)
        assert not {e[0] for e in log} & {"host waits", "query", "allocate"}, log
        work.wait()
        equal(y.cpu(), reduced_on_cpu(data(me.rank, seed=5)))
        assert "staging" in agoq_comm.describe(group)
        dist.destroy_process_group(group)


@checks
def a_split_group_has_its_own_stream_and_memory(me: Rank) -> None:
    group = dist.new_group([0, 1], backend=BACKEND)
    if me.rank < 2:
        x = on_device(data(me.rank))
        dist.all_reduce(x, group=group)
        expected = data(me.rank)
        dist.all_reduce(expected, group=group)
        equal(x.cpu(), expected)


@checks
def a_group_may_end_with_calls_in_flight(me: Rank) -> None:
    group = dist.new_group(list(range(me.size)), backend=BACKEND)
    x = on_device(data(me.rank))
    fake.set_delays(me.rank, 2000)
    work = dist.all_reduce(x, group=group, async_op=True)
    dist.destroy_process_group(group)
    fake.set_delays(0, 0)
    assert work.get_future_result().wait() == 0  # WorkResult.SUCCESS
    work.wait()
    equal(x.cpu(), reduced_on_cpu(data(me.rank)))
