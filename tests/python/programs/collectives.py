"""Every collective of torch.distributed with its values, quantized and exact."""

from __future__ import annotations

import gc

import torch
import torch.distributed as dist

from checks import Checks
from programs.common import (
    LARGE,
    data,
    equal,
    premul_sum,
    quantized_all_reduce,
    quantized_reduce_scatter,
)
from ranks import Rank

checks = Checks()
ReduceOp = dist.ReduceOp
SMALL = 100
FACTOR = 0.3


def _everyone(me: Rank, *shape: int, **options) -> list[torch.Tensor]:
    return [data(r, *shape, **options) for r in range(me.size)]


@checks
def all_reduce_is_the_contract(me: Rank) -> None:
    for seed, dtype in enumerate((torch.float32, torch.bfloat16, torch.float16)):
        inputs = _everyone(me, dtype=dtype, seed=seed)
        x = inputs[me.rank].clone()
        dist.all_reduce(x)
        equal(x, quantized_all_reduce(inputs))


@checks
def all_reduce_avg_and_premul_sum(me: Rank) -> None:
    inputs = _everyone(me, 300, 211)
    x = inputs[me.rank].clone()
    dist.all_reduce(x, op=ReduceOp.AVG)
    equal(x, quantized_all_reduce(inputs, "avg"))
    x = inputs[me.rank].clone()
    dist.all_reduce(x, op=premul_sum(FACTOR))
    equal(x, quantized_all_reduce(inputs, "premul_sum", FACTOR))


@checks
def all_reduce_small_is_exact(me: Rank) -> None:
    inputs = torch.stack(_everyone(me, SMALL))
    by_op = {
        ReduceOp.SUM: inputs.sum(0),
        ReduceOp.PRODUCT: inputs.prod(0),
        ReduceOp.MIN: inputs.amin(0),
        ReduceOp.MAX: inputs.amax(0),
        ReduceOp.AVG: inputs.mean(0),
    }
    for op, expected in by_op.items():
        x = inputs[me.rank].clone()
        dist.all_reduce(x, op=op)
        torch.testing.assert_close(x, expected)
    x = inputs[me.rank].clone()
    dist.all_reduce(x, op=premul_sum(FACTOR))
    torch.testing.assert_close(x, inputs.sum(0) * FACTOR)


@checks
def all_reduce_min_max_product_are_exact_at_any_size(me: Rank) -> None:
    inputs = torch.stack(_everyone(me))
    for op, expected in (
        (ReduceOp.MIN, inputs.amin(0)),
        (ReduceOp.MAX, inputs.amax(0)),
        (ReduceOp.PRODUCT, inputs.prod(0)),
    ):
        x = inputs[me.rank].clone()
        dist.all_reduce(x, op=op)
        torch.testing.assert_close(x, expected)


@checks
def all_reduce_of_every_dtype(me: Rank) -> None:
    integers = (torch.int8, torch.uint8, torch.int32, torch.int64)
    for dtype in (torch.float64, *integers):
        x = torch.full((LARGE,), me.rank + 1).to(dtype)
        dist.all_reduce(x)
        equal(x, torch.full((LARGE,), me.size * (me.size + 1) // 2).to(dtype))
    x = torch.tensor([me.rank == 0, False, True])
    dist.all_reduce(x, op=ReduceOp.MAX)
    equal(x, torch.tensor([True, False, True]))


@checks
def complex_numbers_are_their_real_parts(me: Rank) -> None:
    """torch.distributed hands a backend the real view, which is quantized as such."""
    inputs = [torch.view_as_complex(data(r, LARGE, 2)) for r in range(me.size)]
    x = inputs[me.rank].clone()
    dist.all_reduce(x)
    equal(torch.view_as_real(x), quantized_all_reduce([torch.view_as_real(y) for y in inputs]))


@checks
def all_reduce_bitwise(me: Rank) -> None:
    bits = [1 << r for r in range(me.size)]
    x = torch.full((5,), bits[me.rank], dtype=torch.int32)
    dist.all_reduce(x, op=ReduceOp.BOR)
    equal(x, torch.full((5,), sum(bits), dtype=torch.int32))
    dist.all_reduce(x, op=ReduceOp.BAND)
    equal(x, torch.full((5,), sum(bits), dtype=torch.int32))


@checks
def all_reduce_of_odd_shapes(me: Rank) -> None:
    scalar = torch.tensor(float(me.rank + 1))
    dist.all_reduce(scalar)
    equal(scalar, torch.tensor(me.size * (me.size + 1) / 2))
    empty = torch.empty(0)
    dist.all_reduce(empty)
    assert empty.numel() == 0
    for count in (16384, 16385, 20_000 + 1):
        inputs = _everyone(me, count, seed=count)
        x = inputs[me.rank].clone()
        dist.all_reduce(x)
        equal(x, quantized_all_reduce(inputs))


@checks
def all_reduce_of_a_misaligned_view(me: Rank) -> None:
    inputs = _everyone(me, LARGE + 1, dtype=torch.bfloat16)
    whole = inputs[me.rank].clone()
    dist.all_reduce(whole[1:])
    equal(whole[1:], quantized_all_reduce([x[1:] for x in inputs]))
    equal(whole[:1], inputs[me.rank][:1])


@checks
def not_finite_values_reach_every_rank(me: Rank) -> None:
    x = data(me.rank)
    if me.rank == 0:
        x[7] = float("inf")
        x[40_000] = float("nan")
    dist.all_reduce(x)
    assert x[:128].isnan().all() and x[40_000].isnan()
    assert x[128:256].isfinite().all()


@checks
def results_repeat_bit_for_bit(me: Rank) -> None:
    results = []
    for _ in range(3):
        x = data(me.rank, seed=5)
        dist.all_reduce(x)
        results.append(x)
    equal(results[1], results[0])
    equal(results[2], results[0])


@checks
def ranks_agree_bit_for_bit(me: Rank) -> None:
    x = data(me.rank, seed=6)
    dist.all_reduce(x)
    everyone = [torch.empty_like(x) for _ in range(me.size)]
    dist.all_gather(everyone, x)
    for other in everyone:
        equal(other, x)


@checks
def reduce_scatter_tensor(me: Rank) -> None:
    for op, name in (
        (ReduceOp.SUM, "sum"),
        (ReduceOp.AVG, "avg"),
        (premul_sum(FACTOR), "premul_sum"),
    ):
        inputs = _everyone(me, me.size, 10_007, 2)
        out = torch.empty(10_007, 2)
        dist.reduce_scatter_tensor(out, inputs[me.rank].clone(), op=op)
        equal(out, quantized_reduce_scatter([list(x) for x in inputs], name, FACTOR)[me.rank])


@checks
def reduce_scatter_tensor_small_is_exact(me: Rank) -> None:
    for op, scale in (
        (ReduceOp.SUM, 1),
        (ReduceOp.AVG, 1 / me.size),
        (premul_sum(0.5), 0.5),
    ):
        out = torch.empty(4)
        dist.reduce_scatter_tensor(out, torch.full((4 * me.size,), me.rank + 1.0), op=op)
        torch.testing.assert_close(out, torch.full((4,), me.size * (me.size + 1) / 2 * scale))


@checks
def reduce_scatter_list(me: Rank) -> None:
    inputs = [[data(r, 20_011, seed=o) for o in range(me.size)] for r in range(me.size)]
    out = torch.empty(20_011)
    dist.reduce_scatter(out, [x.clone() for x in inputs[me.rank]])
    equal(out, quantized_reduce_scatter(inputs)[me.rank])


@checks
def all_gather_is_exact_by_default(me: Rank) -> None:
    everyone = _everyone(me)
    out = [torch.empty(LARGE) for _ in range(me.size)]
    dist.all_gather(out, everyone[me.rank].clone())
    for actual, expected in zip(out, everyone, strict=True):
        equal(actual, expected)
    flat = torch.empty(me.size * LARGE)
    dist.all_gather_into_tensor(flat, everyone[me.rank].clone())
    equal(flat, torch.cat(everyone))
    stacked = torch.empty(me.size, LARGE)
    dist.all_gather_into_tensor(stacked, everyone[me.rank].clone())
    equal(stacked, torch.stack(everyone))


@checks
def all_gather_of_every_dtype(me: Rank) -> None:
    for dtype in (torch.int8, torch.bfloat16, torch.bool, torch.int64, torch.float64):
        out = torch.empty(4 * me.size, dtype=dtype)
        dist.all_gather_into_tensor(out, torch.full((4,), me.rank).to(dtype))
        equal(out, torch.arange(me.size).repeat_interleave(4).to(dtype))


@checks
def broadcast_reduce_gather_scatter(me: Rank) -> None:
    last = me.size - 1
    x = torch.full((3,), float(me.rank))
    dist.broadcast(x, last)
    equal(x, torch.full((3,), float(last)))
    x = torch.full((3,), float(me.rank))
    dist.reduce(x, last)
    if me.rank == last:
        equal(x, torch.full((3,), float(sum(range(me.size)))))
    parts = [torch.empty(3) for _ in range(me.size)] if me.rank == last else None
    dist.gather(torch.full((3,), float(me.rank)), parts, last)
    for r, part in enumerate(parts or []):
        equal(part, torch.full((3,), float(r)))
    parts = [torch.full((3,), float(r)) for r in range(me.size)] if me.rank == last else None
    out = torch.empty(3)
    dist.scatter(out, parts, last)
    equal(out, torch.full((3,), float(me.rank)))


@checks
def large_broadcast_and_reduce_are_exact(me: Rank) -> None:
    x = data(me.rank)
    dist.broadcast(x, 1)
    equal(x, data(1))
    x = torch.full((LARGE,), float(me.rank))
    dist.reduce(x, 0)
    if me.rank == 0:
        equal(x, torch.full((LARGE,), float(sum(range(me.size)))))


@checks
def all_to_all(me: Rank) -> None:
    out = [torch.empty(2) for _ in range(me.size)]
    dist.all_to_all(out, [torch.full((2,), float(me.rank * 10 + r)) for r in range(me.size)])
    for r, part in enumerate(out):
        equal(part, torch.full((2,), float(r * 10 + me.rank)))


@checks
def all_to_all_single(me: Rank) -> None:
    out = torch.empty(me.size * 2)
    dist.all_to_all_single(out, torch.arange(2.0 * me.size) + 100 * me.rank)
    equal(out.view(-1, 2)[:, 0], torch.arange(me.size) * 100.0 + 2 * me.rank)
    sends = [r + 1 for r in range(me.size)]
    receives = [me.rank + 1] * me.size
    out = torch.empty(sum(receives))
    dist.all_to_all_single(out, torch.full((sum(sends),), float(me.rank)), receives, sends)
    equal(out, torch.arange(float(me.size)).repeat_interleave(me.rank + 1))


@checks
def coalesced_all_reduce(me: Rank) -> None:
    """One buffer and one call: many small tensors together are worth encoding."""
    sizes = [10, LARGE, 4000, 1]
    inputs = [data(r, sum(sizes)) for r in range(me.size)]
    parts = [part.clone() for part in inputs[me.rank].split(sizes)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for part in parts:
            dist.all_reduce(part)
    manager.wait()
    equal(torch.cat(parts), quantized_all_reduce(inputs))
    few = [torch.full((10,), float(me.rank)), torch.ones(3)]
    with dist._coalescing_manager() as manager:
        for part in few:
            dist.all_reduce(part)
    equal(few[0], torch.full((10,), float(sum(range(me.size)))))
    equal(few[1], torch.full((3,), float(me.size)))


@checks
def coalesced_all_gather_and_reduce_scatter(me: Rank) -> None:
    outs = [torch.empty(10 * me.size) for _ in range(2)]
    with dist._coalescing_manager():
        for i, out in enumerate(outs):
            dist.all_gather_into_tensor(out, torch.full((10,), float(me.rank + i)))
    for i, out in enumerate(outs):
        equal(out, torch.arange(me.size).repeat_interleave(10).float() + i)
    outs = [torch.empty(10) for _ in range(2)]
    with dist._coalescing_manager():
        for i, out in enumerate(outs):
            dist.reduce_scatter_tensor(out, torch.full((10 * me.size,), float(i + 1)))
    for i, out in enumerate(outs):
        equal(out, torch.full((10,), float(me.size * (i + 1))))


@checks
def coalescing_manager_with_a_device(me: Rank) -> None:
    x = torch.ones(4)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_reduce(x)
    manager.wait()
    equal(x, torch.full((4,), float(me.size)))


@checks
def async_work_and_future(me: Rank) -> None:
    inputs = _everyone(me)
    x = inputs[me.rank].clone()
    work = dist.all_reduce(x, async_op=True)
    total = work.get_future().then(lambda future: future.value()[0].sum().item()).wait()
    work.wait()
    expected = quantized_all_reduce(inputs)
    equal(x, expected)
    assert total == expected.sum().item()
    assert work.is_completed() and work.is_success()
    equal(work.result()[0], expected)
    assert work.get_future_result().wait() is not None


@checks
def work_dropped_without_wait(me: Rank) -> None:
    x = torch.ones(200_000)
    dist.all_reduce(x, async_op=True)
    gc.collect()
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    inputs = [torch.ones(200_000)] * me.size
    y = inputs[0].clone()
    dist.all_reduce(y)
    equal(y, quantized_all_reduce(inputs))


@checks
def inputs_live_until_the_call_ends(me: Rank) -> None:
    pending = []
    for i in range(20):
        out = torch.empty(1000 * me.size)
        x = torch.full((1000,), float(me.rank + i))
        pending.append((dist.all_gather_into_tensor(out, x, async_op=True), out))
        del x
    for i, (work, out) in enumerate(pending):
        work.wait()
        equal(out, torch.arange(me.size).repeat_interleave(1000).float() + i)


@checks
def many_calls_in_flight_keep_their_order(me: Rank) -> None:
    inputs = [_everyone(me, 20_000, seed=i) for i in range(8)]
    outputs = [row[me.rank].clone() for row in inputs]
    for work in [dist.all_reduce(x, async_op=True) for x in outputs]:
        work.wait()
    for row, x in zip(inputs, outputs, strict=True):
        equal(x, quantized_all_reduce(row))


@checks
def layouts_that_are_not_contiguous(me: Rank) -> None:
    """Either served, or refused with a sentence that says what can be; never wrong."""
    x = torch.full((150, 160), float(me.rank + 1)).t()
    try:
        dist.all_reduce(x)
    except (RuntimeError, ValueError) as error:
        assert "contiguous" in str(error), error
    else:
        expected = me.size * (me.size + 1) / 2
        torch.testing.assert_close(x, torch.full((160, 150), expected), rtol=0.01, atol=0)


@checks
def sparse_all_reduce(me: Rank) -> None:
    x = torch.sparse_coo_tensor(torch.tensor([[me.rank]]), torch.ones(1, 3), (me.size, 3))
    dist.all_reduce(x)
    equal(x.to_dense(), torch.ones(me.size, 3))
