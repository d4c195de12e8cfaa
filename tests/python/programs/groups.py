"""Groups, point to point, objects, barriers, timeouts, options: what is around the collectives."""

from __future__ import annotations

import copy
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import agoq_comm
import oracle
from checks import Checks
from programs.common import LARGE, data, equal, quantized_all_reduce, refused, roundtrip
from ranks import Rank

checks = Checks()
CPU = torch.device("cpu")


def _backend(group: dist.ProcessGroup | None = None):
    return (group or dist.group.WORLD)._get_backend(CPU)


def _reduces(group: dist.ProcessGroup | None, me: Rank, members: list[int]) -> None:
    """A quantized all_reduce over `members`, of which this rank is one."""
    x = data(me.rank)
    dist.all_reduce(x, group=group)
    equal(x, quantized_all_reduce([data(r) for r in members]))


@checks
def names(me: Rank) -> None:
    assert dist.get_backend() == "agoq"
    assert _backend().name() == "agoq"


@checks
def new_group_of_all(me: Rank) -> None:
    group = dist.new_group(list(range(me.size)))
    _reduces(group, me, list(range(me.size)))
    dist.barrier(group=group)
    dist.destroy_process_group(group)


@checks
def a_group_of_every_format(me: Rank) -> None:
    sent = {}
    for element in oracle.NUMBERS:
        group = dist.new_group(pg_options=agoq_comm.Options(format=element))
        for dtype in (torch.float32, torch.bfloat16):
            inputs = [data(r, dtype=dtype) for r in range(me.size)]
            x = inputs[me.rank].clone()
            dist.all_reduce(x, group=group)
            equal(x, quantized_all_reduce(inputs, element=element))
        sent[element] = agoq_comm.stats(group)["all_reduce"]["wire_bytes"]
        dist.destroy_process_group(group)
    for element, bits in oracle.BITS.items():
        assert abs(sent[element] / sent["int8"] - (bits + 0.125) / 8.125) < 0.002, sent


@checks
def one_that_waits_for_a_late_rank_holds_up_no_other(me: Rank) -> None:
    waiting, busy = dist.new_group(), dist.new_group()
    everyone = list(range(me.size))
    x = data(me.rank)
    early = dist.all_reduce(x, group=waiting, async_op=True) if me.rank == 0 else None
    for _ in range(20):
        _reduces(busy, me, everyone)
    if early is not None:
        assert not early.is_completed()
    dist.barrier(group=busy)  # Only now do the others make the call that rank 0 waits in.
    if early is None:
        dist.all_reduce(x, group=waiting)
    else:
        early.wait()
    equal(x, quantized_all_reduce([data(r) for r in everyone]))


@checks
def subgroups_of_one_and_two(me: Rank) -> None:
    alone = [dist.new_group([r]) for r in range(me.size)][me.rank]
    x = data(me.rank)
    dist.all_reduce(x, group=alone)
    equal(x, data(me.rank))
    out = torch.empty_like(x)
    dist.reduce_scatter_tensor(out, x, group=alone)
    equal(out, data(me.rank))
    pair = dist.new_group([0, me.size - 1])
    if me.rank in (0, me.size - 1):
        _reduces(pair, me, [0, me.size - 1])
    reasons = agoq_comm.stats(alone)["all_reduce"]["exact_by_reason"]
    assert reasons == {"one rank": 1}, reasons


@checks.from_ranks(3)
def overlapping_subgroups_reduce_their_own_members(me: Rank) -> None:
    first, second = dist.new_group([0, 1]), dist.new_group([1, 2])
    if me.rank in (0, 1):
        _reduces(first, me, [0, 1])
    if me.rank in (1, 2):
        _reduces(second, me, [1, 2])
    _reduces(None, me, [0, 1, 2])


@checks
def two_groups_in_flight_at_once(me: Rank) -> None:
    groups = [dist.new_group() for _ in range(2)]
    outputs = [data(me.rank, seed=i) for i in range(2)]
    works = [
        dist.all_reduce(x, group=group, async_op=True)
        for x, group in zip(outputs, groups, strict=True)
    ]
    for work in reversed(works):
        work.wait()
    for i, x in enumerate(outputs):
        equal(x, quantized_all_reduce([data(r, seed=i) for r in range(me.size)]))


@checks
def new_group_with_options(me: Rank) -> None:
    options = agoq_comm.Options(block=32, scale="fp32", min_numel=10)
    group = dist.new_group(pg_options=options)
    seen = _backend(group).options
    assert (seen.block, seen.scale, seen.min_numel) == (32, "fp32", 10)
    x = torch.full((20,), 1.0 + me.rank)
    dist.all_reduce(x, group=group)
    assert agoq_comm.stats(group)["all_reduce"]["quantized_calls"] == 1
    assert "int8/32/fp32" in agoq_comm.describe(group)


@checks
def quantized_all_gather_when_asked(me: Rank) -> None:
    options = agoq_comm.Options(quantize=("all_reduce", "reduce_scatter", "all_gather"))
    group = dist.new_group(pg_options=options)
    everyone = [data(r) for r in range(me.size)]
    out = torch.empty(me.size * LARGE)
    dist.all_gather_into_tensor(out, everyone[me.rank].clone(), group=group)
    equal(out, torch.cat([roundtrip(x) for x in everyone]))
    dist.destroy_process_group(group)


@checks
def options_of_one_group_leave_the_others_alone(me: Rank) -> None:
    options = agoq_comm.Options(block=64)
    group = dist.new_group(pg_options=options, timeout=timedelta(seconds=7))
    options.block = 512
    assert _backend(group).options.block == 64
    assert _backend().options.block == 128
    assert options._timeout != timedelta(seconds=7)


@checks
def wrong_pg_options_are_refused_with_a_sentence(me: Rank) -> None:
    with refused("agoq_comm.Options"):
        dist.new_group(pg_options=dist.ProcessGroupGloo._Options())


@checks
def new_group_of_gloo_beside_agoq(me: Rank) -> None:
    group = dist.new_group(backend="gloo")
    dist.monitored_barrier(group)
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    equal(x, torch.full((3,), float(me.size)))
    dist.destroy_process_group(group)


@checks
def device_mesh_1d_and_2d(me: Rank) -> None:
    mesh = init_device_mesh("cpu", (1, me.size), mesh_dim_names=("a", "b"))
    assert dist.get_backend(mesh.get_group("b")) == "agoq"
    _reduces(mesh.get_group("b"), me, list(range(me.size)))
    _x = torch.ones(3)
    dist.all_reduce(_x, group=mesh.get_group("a"))
    equal(_x, torch.ones(3))


@checks
def device_mesh_backend_override(me: Rank) -> None:
    mesh = init_device_mesh(
        "cpu",
        (1, me.size),
        mesh_dim_names=("tp", "dp"),
        backend_override={"dp": ("agoq", agoq_comm.Options(block=256)), "tp": "gloo"},
    )
    assert dist.get_backend(mesh.get_group("dp")) == "agoq"
    assert dist.get_backend(mesh.get_group("tp")) == "gloo"
    assert _backend(mesh.get_group("dp")).options.block == 256


@checks
def split_of_the_process_group(me: Rank) -> None:
    world = dist.group.WORLD
    split = world.split_group(
        [0, 1], timeout=timedelta(seconds=30), opts=None, group_name="halves", group_desc="two"
    )
    if me.rank in (0, 1):
        x = data(me.rank)
        split.allreduce([x]).wait()
        equal(x, quantized_all_reduce([data(0), data(1)]))
        assert type(split._get_backend(CPU)) is type(_backend())


@checks
def send_and_recv(me: Rank) -> None:
    if me.rank == 0:
        dist.send(torch.arange(3.0), 1, tag=7)
        dist.send(data(0), 1)
    elif me.rank == 1:
        x = torch.empty(3)
        assert dist.recv(x, 0, tag=7) == 0
        equal(x, torch.arange(3.0))
        large = torch.empty_like(data(0))
        assert dist.recv(large) == 0, "the source of a receive from anyone"
        equal(large, data(0))


@checks
def batched_point_to_point(me: Rank) -> None:
    sent, received = torch.full((4,), float(me.rank)), torch.empty(4)
    ops = [
        dist.P2POp(dist.isend, sent, (me.rank + 1) % me.size),
        dist.P2POp(dist.irecv, received, (me.rank - 1) % me.size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    equal(received, torch.full((4,), float((me.rank - 1) % me.size)))


@checks
def point_to_point_beside_collectives(me: Rank) -> None:
    """Sends that wait for their receiver do not hold up a collective issued after them."""
    big = data(me.rank, seed=3)
    peer = (me.rank + 1) % me.size
    send = dist.isend(torch.full((9,), float(me.rank)), peer)
    work = dist.all_reduce(big, async_op=True)
    received = torch.empty(9)
    work.wait()
    dist.irecv(received, (me.rank - 1) % me.size).wait()
    send.wait()
    equal(received, torch.full((9,), float((me.rank - 1) % me.size)))
    equal(big, quantized_all_reduce([data(r, seed=3) for r in range(me.size)]))


@checks
def objects(me: Rank) -> None:
    everyone = [None] * me.size
    dist.all_gather_object(everyone, {"rank": me.rank})
    assert everyone == [{"rank": r} for r in range(me.size)]
    pair = [0, "x"] if me.rank == 0 else [None, None]
    dist.broadcast_object_list(pair, 0)
    assert pair == [0, "x"]
    gathered = [None] * me.size if me.rank == 0 else None
    dist.gather_object(me.rank, gathered, 0)
    assert me.rank != 0 or gathered == list(range(me.size))
    mine = [None]
    dist.scatter_object_list(mine, list(range(me.size)) if me.rank == 0 else None, 0)
    assert mine == [me.rank]
    if me.rank == 0:
        dist.send_object_list([1, 2], dst=1)
    elif me.rank == 1:
        received = [None, None]
        dist.recv_object_list(received, src=0)
        assert received == [1, 2]


@checks
def barriers(me: Rank) -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()
    dist.barrier(device_ids=[0])
    _backend().monitored_barrier(timedelta(seconds=20), False)


@checks
def timeouts_can_be_changed(me: Rank) -> None:
    group = dist.new_group(timeout=timedelta(seconds=9))
    assert _backend(group).options._timeout == timedelta(seconds=9)
    group.set_timeout(timedelta(seconds=11))
    assert _backend(group).options._timeout == timedelta(seconds=11)
    assert "timeout 11000 ms" in agoq_comm.describe(group)


@checks
def options_of_a_backend_copy(me: Rank) -> None:
    seen = _backend().options
    other = copy.deepcopy(seen)
    assert other == seen and other is not seen


@checks
def stats_count_quantized_and_exact(me: Rank) -> None:
    group = dist.new_group()
    dist.all_reduce(data(me.rank), group=group)
    dist.all_reduce(torch.ones(3), group=group)
    dist.all_reduce(torch.ones(20_000, dtype=torch.int64), group=group)
    dist.all_reduce(data(me.rank), op=dist.ReduceOp.MAX, group=group)
    out = torch.empty(20_000 * me.size)
    dist.all_gather_into_tensor(out, torch.ones(20_000), group=group)
    dist.broadcast(torch.ones(5), 0, group=group)
    counted = agoq_comm.stats(group)
    reduced = counted["all_reduce"]
    assert reduced["quantized_calls"] == 1 and reduced["exact_calls"] == 3, reduced
    assert reduced["exact_by_reason"] == {"small": 1, "data type": 1, "reduce op": 1}, reduced
    assert counted["all_gather"]["exact_by_reason"] == {"not selected": 1}, counted
    assert counted["broadcast"]["exact_by_reason"] == {"operation": 1}, counted
    agoq_comm.reset_stats(group)
    assert agoq_comm.stats(group) == {}


@checks
def stats_measure_the_saving(me: Rank) -> None:
    group = dist.new_group()
    count = 1 << 20
    dist.all_reduce(torch.randn(count), group=group)
    counted = agoq_comm.stats(group)["all_reduce"]
    ratio = counted["exact_bytes"] / counted["wire_bytes"]
    assert 3.9 < ratio <= 3.94, counted
    assert counted["elements"] == count
    for part in ("encode_seconds", "decode_seconds", "total_seconds"):
        assert 0 < counted[part] < 30, (part, counted)
    # The rank that comes last finds every piece of the others there and never waits.
    assert 0 <= counted["wait_seconds"] < 30, counted


@checks
def describe_says_what_matters(me: Rank) -> None:
    text = agoq_comm.describe()
    for words in ("agoq", f"{me.size}", "int8/128/bf16", "16384"):
        assert words in text, (words, text)


@checks
def profiler_ranges(me: Rank) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as trace:
        dist.all_reduce(data(me.rank))
        dist.all_reduce(torch.ones(5))
    seen = {event.name for event in trace.events()}
    assert any("agoq" in name and "all_reduce" in name for name in seen), seen


@checks
def shapes_that_do_not_fit_get_a_sentence(me: Rank) -> None:
    for call in (
        lambda: dist.reduce_scatter_tensor(torch.empty(5), torch.ones(5 * me.size + 1)),
        lambda: dist.all_gather_into_tensor(torch.empty(5 * me.size + 1), torch.ones(5)),
        lambda: dist.all_gather_into_tensor(torch.empty(5 * me.size).half(), torch.ones(5)),
        lambda: dist.reduce_scatter(torch.empty(5), [torch.ones(5)] * (me.size + 1)),
    ):
        try:
            call()
        except (ValueError, RuntimeError, TypeError) as error:
            assert len(str(error).splitlines()[0]) > 20, error
        else:
            raise AssertionError("accepted")
    _reduces(None, me, list(range(me.size)))
