"""What a group on a device does when a peer or its inner backend fails."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm
import device_fake
from programs.common import data
from ranks import Rank


def _error_of(call, *arguments, **keywords) -> str:
    try:
        call(*arguments, **keywords)
    except dist.DistBackendError as error:
        return str(error)
    return ""


def _eventually(question) -> float:
    begun = time.monotonic()
    while not question():
        assert time.monotonic() - begun < 20, "nothing was noticed"
        time.sleep(0.02)
    return time.monotonic() - begun


def _options(me: Rank) -> agoq_comm.Options:
    return agoq_comm.Options(device_transport=me.arguments.get("device_transport", "auto"))


def _all_reduce_within_two_seconds(x: torch.Tensor) -> dist.Work:
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=2)
    return dist.group.WORLD.allreduce([x], options)


def late_peer(me: Rank) -> dict[str, Any]:
    """Rank 1 does not make the call that rank 0 makes with a timeout of two seconds."""
    device_fake.load(me)
    me.init_process_group(timeout=60, pg_options=_options(me))
    x = data(me.rank).to("fake")
    seen: dict[str, Any] = {}
    if me.rank == 0:
        work = _all_reduce_within_two_seconds(x)
        work.wait()
        seen["unfinished"] = not work.is_completed()
        seen["noticed"] = _eventually(lambda: work.exception() is not None)
        seen["result"] = work.get_future_result().wait()
        seen["wait"] = _error_of(work.wait)
        seen["next"] = _error_of(dist.all_reduce, x)
        seen["success"] = work.is_success()
        (me.directory / "seen").touch()
    else:
        _eventually(lambda: (me.directory / "seen").exists())
    return seen


def preparation_fails(me: Rank) -> dict[str, str]:
    """Over host memory, rank 0 cannot prepare its device: first harmlessly, then half-way."""
    device_fake.load(me)
    options = agoq_comm.Options(device_transport="host")
    me.init_process_group(timeout=10, pg_options=options)
    x = data(me.rank).to("fake")
    seen: dict[str, str] = {}
    if me.rank == 0:
        device_fake.fake.fail_codec(True)
        try:
            dist.all_reduce(x)
        except RuntimeError as error:
            seen["harmless"] = str(error)
        device_fake.fake.fail_codec(False)
        device_fake.fake.fail_pinned(True)
    seen["call"] = _error_of(_all_reduce_and_see, x)
    seen["next"] = _error_of(_all_reduce_and_see, x)
    return seen


def _all_reduce_and_see(x: torch.Tensor) -> None:
    work = dist.all_reduce(x, async_op=True)
    work.wait(timedelta(seconds=20))


def broken_inner(me: Rank) -> dict[str, str | float]:
    """The inner backend reports an error while a call waits for a peer."""
    device_fake.load(me)
    me.init_process_group(timeout=60)
    x = data(me.rank).to("fake")
    seen: dict[str, str | float] = {}
    if me.rank == 0:
        work = dist.all_reduce(x, async_op=True)
        device_fake.inner.break_down(me.arguments["throws"])
        seen["noticed"] = _eventually(lambda: work.exception() is not None)
        seen["wait"] = _error_of(work.wait)
        seen["next"] = _error_of(dist.all_reduce, x)
        (me.directory / "seen").touch()
    else:
        _eventually(lambda: (me.directory / "seen").exists())
    return seen
