"""What holds when several threads of a rank use a group on a device, and calls that are several."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
import device_fake
from checks import Checks
from device_fake import fake
from programs.common import LARGE, data, equal, refused
from ranks import Rank

checks = Checks()
prepare = device_fake.load
INIT = {
    "pg_options": agoq_comm.Options(quantize=("all_reduce", "reduce_scatter", "all_gather")),
}
DEVICE = "fake"


class Thread:
    """A function on a thread of its own; `join` returns what it returned, or raises."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:
            self._error = error

    def join(self) -> Any:
        self._thread.join(30)
        assert not self._thread.is_alive(), "the thread is stuck"
        if self._error is not None:
            raise self._error
        return self._result


def until(question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def reduced(x: torch.Tensor, group: Any = None) -> torch.Tensor:
    result = x.clone()
    dist.all_reduce(result, group=group)
    return result


def names(log: list[Any]) -> list[str]:
    return [entry[0] for entry in log]


@checks
def an_exchange_is_not_joined_by_another_threads_call(me: Rank) -> None:
    small, large = torch.full((100,), float(me.rank)), data(me.rank)
    expected = reduced(small), reduced(large)
    on_it = small.to(DEVICE), large.to(DEVICE)
    inner = device_fake.inner
    inner.linger(200)
    fake.take_log()
    quantized = Thread(lambda: dist.all_reduce(on_it[1]))
    until(inner.has_open_bracket)
    dist.all_reduce(on_it[0])
    quantized.join()
    inner.linger(0)
    log = names(fake.take_log())
    assert "intrusion" not in log
    # Not between the exchanges of the quantized call either: ranks would differ in the order.
    assert log.index("allreduce") > max(i for i, name in enumerate(log) if name == "exchange")
    equal(on_it[0].cpu(), expected[0])
    equal(on_it[1].cpu(), expected[1])


@checks
def a_bracket_is_one_threads_alone(me: Rank) -> None:
    group = dist.group.WORLD
    mine, small, large = torch.ones(50), torch.full((100,), float(me.rank)), data(me.rank)
    expected = [reduced(x) for x in (mine, small, large)]
    on_it = [x.to(DEVICE) for x in (mine, small, large)]
    fake.take_log()
    group._start_coalescing(torch.device(DEVICE))
    begun = threading.Event()

    def others_calls() -> list[Any]:
        begun.set()
        return [group.allreduce([x], dist.AllreduceOptions()) for x in on_it[1:]]

    other = Thread(others_calls)
    begun.wait()
    time.sleep(0.1)
    assert group.allreduce([on_it[0]], dist.AllreduceOptions()) is None
    group._end_coalescing(torch.device(DEVICE)).wait()
    works = other.join()
    assert None not in works, "another thread's calls were taken into the bracket"
    for work in works:
        work.wait()
    log = names(fake.take_log())
    assert "intrusion" not in log
    # The bracket's exchange, the other thread's exact call, and its quantized one.
    assert log.index("exchange") < log.index("allreduce") < log.index("encode"), log
    for x, right in zip(on_it, expected, strict=True):
        equal(x.cpu(), right)


@checks
def a_bracket_left_open_stops_other_threads_by_the_timeout(me: Rank) -> None:
    group = dist.new_group(backend=device_fake.BACKEND, timeout=timedelta(seconds=1))
    x = torch.ones(100).to(DEVICE)
    Thread(lambda: group._start_coalescing(torch.device(DEVICE))).join()
    with refused("Timed out after 1000 ms while another thread", dist.DistBackendError):
        dist.all_reduce(x, group=group)


@checks
def a_bracket_left_open_is_begun_anew(me: Rank) -> None:
    group = dist.new_group(backend=device_fake.BACKEND)
    x = torch.full((100,), float(me.rank))
    expected, on_it = reduced(x), x.to(DEVICE)
    for _ in range(2):
        group._start_coalescing(torch.device(DEVICE))
    group.allreduce([on_it], dist.AllreduceOptions())
    group._end_coalescing(torch.device(DEVICE)).wait()
    Thread(lambda: dist.all_reduce(torch.ones(100).to(DEVICE), group=group)).join()
    equal(on_it.cpu(), expected)


@checks
def the_future_of_exact_and_quantized_calls_together(me: Rank) -> None:
    """Complete at once, as NCCL's: its values are there for who waits by their stream."""
    with_small = [data(me.rank, n * me.size, seed=n) for n in (100, LARGE)]
    expected = [torch.empty(x.numel() // me.size) for x in with_small]
    for out, x in zip(expected, with_small, strict=True):
        dist.reduce_scatter_tensor(out, x)
    outs = [torch.empty_like(out).to(DEVICE) for out in expected]
    inputs = [x.to(DEVICE) for x in with_small]
    fake.set_delays(me.rank, 2000)
    with dist._coalescing_manager(async_ops=True) as manager:
        for out, x in zip(outs, inputs, strict=True):
            dist.reduce_scatter_tensor(out, x)
    (work,) = manager.works
    future = work.get_future()
    chained = future.then(lambda ended: [value.clone() for value in ended.value()])
    values = future.wait()
    assert [v.data_ptr() for v in values] == [out.data_ptr() for out in outs]
    for value, copy, right in zip(values, chained.wait(), expected, strict=True):
        torch.testing.assert_close(value.cpu(), right, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(copy.cpu(), right, rtol=1e-6, atol=1e-6)
    fake.set_delays(0, 0)


@checks
def the_future_of_a_bracket_with_tensors_of_cpu_and_device(me: Rank) -> None:
    group = dist.group.WORLD
    tensors = [data(me.rank, LARGE, seed=i) for i in range(2)]
    expected = [reduced(x) for x in tensors]
    on_cpu, on_it = tensors[0], tensors[1].to(DEVICE)
    options = dist.AllreduceOptions()
    options.asyncOp = True
    group._start_coalescing(torch.device(DEVICE))
    group.allreduce([on_cpu], options)
    group.allreduce([on_it], options)
    values = group._end_coalescing(torch.device(DEVICE)).get_future().wait()
    equal(values[0], expected[0])
    equal(values[1].cpu(), expected[1])
