"""Ranks that die, stay away or disagree; each function is one launch and returns what it saw."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
from programs.common import LARGE
from ranks import Rank


def _pieces() -> list[torch.Tensor] | None:
    """One tensor a rank on rank 0, the root of the calls below; None elsewhere."""
    if dist.get_rank() != 0:
        return None
    return [torch.ones(20_000) for _ in range(dist.get_world_size())]


CALLS: dict[str, Callable[[], Any]] = {
    "all_reduce": lambda: dist.all_reduce(torch.ones(LARGE)),
    "exact all_reduce": lambda: dist.all_reduce(torch.ones(100)),
    "reduce_scatter": lambda: dist.reduce_scatter_tensor(
        torch.ones(20_000), torch.ones(20_000 * dist.get_world_size())
    ),
    "all_gather": lambda: dist.all_gather_into_tensor(
        torch.ones(20_000 * dist.get_world_size()), torch.ones(20_000)
    ),
    "broadcast": lambda: dist.broadcast(torch.ones(LARGE), 0),
    "barrier": lambda: dist.barrier(),
    "gather": lambda: dist.gather(torch.ones(20_000), _pieces(), 0),
    "scatter": lambda: dist.scatter(torch.ones(20_000), _pieces(), 0),
    "reduce": lambda: dist.reduce(torch.ones(20_000), 0),
    "all_to_all": lambda: dist.all_to_all_single(
        torch.ones(20_000 * dist.get_world_size()), torch.ones(20_000 * dist.get_world_size())
    ),
}


def attempt(call: Callable[[], Any]) -> dict[str, Any]:
    """How a call ended: its error's type and words, and the seconds it took."""
    start = time.monotonic()
    try:
        call()
        error, kind = None, None
    except Exception as raised:
        error, kind = str(raised), type(raised).__name__
    return {"error": error, "type": kind, "seconds": time.monotonic() - start}


def _leave(value: Any) -> Any:
    """Destroy the failed group, which must neither hang nor raise, and pass `value` on."""
    destroyed = attempt(dist.destroy_process_group)
    return {"calls": value, "destroy": destroyed}


def killed_during(me: Rank) -> Any:
    """The last rank kills itself while the others are in the call."""
    me.init_process_group(timeout=15)
    dist.all_reduce(torch.ones(LARGE))
    if me.rank == me.size - 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    call = CALLS[me.arguments["call"]]
    return _leave([attempt(call), attempt(CALLS["all_reduce"])])


def killed_with_async_work(me: Rank) -> Any:
    """The same, seen through Work.wait and the future of an asynchronous call."""
    me.init_process_group(timeout=15)
    dist.all_reduce(torch.ones(LARGE))
    if me.rank == me.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(LARGE), async_op=True)
    future = work.get_future()
    seen = [attempt(work.wait), attempt(future.wait)]
    return _leave([*seen, {"error": str(work.exception()), "type": None, "seconds": 0.0}])


def never_calls(me: Rank) -> Any:
    """The last rank stays away until the others have timed out."""
    me.init_process_group(timeout=2)
    told = me.directory / "told"
    if me.rank == me.size - 1:
        for _ in range(400):
            if told.exists():
                break
            time.sleep(0.1)
        return None
    calls = [attempt(CALLS[me.arguments["call"]]), attempt(CALLS["all_reduce"])]
    told.touch()
    return _leave(calls)


MISMATCHES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "count": (
        lambda: dist.all_reduce(torch.ones(LARGE)),
        lambda: dist.all_reduce(torch.ones(LARGE + 1)),
    ),
    "exact count": (
        lambda: dist.all_reduce(torch.ones(100)),
        lambda: dist.all_reduce(torch.ones(101)),
    ),
    "dtype": (
        lambda: dist.all_reduce(torch.ones(LARGE)),
        lambda: dist.all_reduce(torch.ones(LARGE).bfloat16()),
    ),
    "reduce op": (
        lambda: dist.all_reduce(torch.ones(LARGE)),
        lambda: dist.all_reduce(torch.ones(LARGE), op=dist.ReduceOp.AVG),
    ),
    "operation": (CALLS["all_reduce"], CALLS["reduce_scatter"]),
    "quantized and exact": (CALLS["all_reduce"], CALLS["exact all_reduce"]),
    "root": (
        lambda: dist.broadcast(torch.ones(100), 0),
        lambda: dist.broadcast(torch.ones(100), 1),
    ),
}


def mismatch(me: Rank) -> Any:
    """Rank 0 makes one call, the others another."""
    me.init_process_group(timeout=8)
    pair = MISMATCHES[me.arguments["case"]]
    return _leave([attempt(pair[0 if me.rank == 0 else 1]), attempt(CALLS["all_reduce"])])


def different_options(me: Rank) -> Any:
    """Options that must agree differ; init itself must say so."""
    options = agoq_comm.Options(**(me.arguments["options"] if me.rank else {}))

    return attempt(lambda: me.init_process_group(timeout=15, pg_options=options))


def different_environment(me: Rank) -> Any:
    """The same by AGOQ_ variables on one rank."""
    if me.rank:
        os.environ["AGOQ_BLOCK"] = "256"

    return attempt(lambda: me.init_process_group(timeout=15))


def destroyed_with_work_pending(me: Rank) -> Any:
    """A group is destroyed while its call waits for a peer that never comes."""
    me.init_process_group(timeout=60)
    group = dist.new_group(timeout=timedelta(seconds=60))
    if me.rank == 0:
        work = dist.all_reduce(torch.ones(LARGE), group=group, async_op=True)
        time.sleep(0.2)
        destroyed = attempt(lambda: dist.destroy_process_group(group))
        waited = attempt(work.wait)
    else:
        destroyed = attempt(lambda: dist.destroy_process_group(group))
        waited = None
    dist.barrier()
    dist.destroy_process_group()
    return {"destroyed": destroyed, "waited": waited}


def exits_without_destroy(me: Rank) -> Any:
    """A rank returns from main with a group alive and work in flight done."""
    me.init_process_group()
    dist.all_reduce(torch.ones(LARGE))
    return True


def one_failed_group_leaves_the_others(me: Rank) -> Any:
    """A subgroup times out; the world still works."""
    me.init_process_group(timeout=30)
    group = dist.new_group(timeout=timedelta(seconds=1))
    seen = None
    if me.rank == 0:
        seen = attempt(lambda: dist.all_reduce(torch.ones(LARGE), group=group))
    x = torch.ones(100)
    dist.all_reduce(x)
    dist.destroy_process_group()
    return {"subgroup": seen, "world": float(x[0])}


def many_groups(me: Rank) -> Any:
    """Make, use and destroy groups; return (fds, threads, RSS in KiB) on the way."""
    me.init_process_group(timeout=60)
    readings = []
    for i in range(me.arguments["groups"] + 1):
        if i % me.arguments["every"] == 0:
            readings.append(_usage())
        group = dist.new_group(use_local_synchronization=False)
        x = torch.ones(20_000)
        dist.all_reduce(x, group=group)
        assert abs(float(x[0]) - me.size) < 0.02
        dist.destroy_process_group(group)
    dist.destroy_process_group()
    return readings


def _usage() -> tuple[int, int, int]:
    with open("/proc/self/status") as status:
        fields = dict(line.split(":", 1) for line in status)
    return (
        len(os.listdir("/proc/self/fd")),
        int(fields["Threads"]),
        int(fields["VmRSS"].split()[0]),
    )
