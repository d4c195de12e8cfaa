"""Megatron's functions over a group of agoq: values, gradients, splits, policies."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

import agoq_comm
from agoq_comm import sequence_parallel as sp
from checks import Checks
from programs import row_oracle
from programs.common import data, equal, quantized_all_reduce
from ranks import Rank

checks = Checks()
# Whole blocks, a short tail, less than one block.
WIDTHS = (256, 200, 72)
FORWARD_ONLY = sp.QuantizationPolicy(forward=True, backward=False)
BACKWARD_ONLY = sp.QuantizationPolicy(forward=False, backward=True)


def _rows(width: int) -> int:
    """Enough for a rank's part to be quantized, and a number that nothing divides."""
    return 16384 // width + 3


@functools.cache
def _all_quantized() -> dist.ProcessGroup:
    """A group whose options quantize every collective, so that the backend does it where it can."""
    everything = ("all_reduce", "reduce_scatter", "all_gather")
    return dist.new_group(pg_options=agoq_comm.Options(quantize=everything))


def _parts(me: Rank, *shape: int, seed: int = 0, dtype=torch.float32) -> list[torch.Tensor]:
    return [data(rank, *shape, seed=seed, dtype=dtype) for rank in range(me.size)]


def _differentiate(function, x: torch.Tensor, grad: torch.Tensor):
    x = x.clone().requires_grad_()
    y = function(x)
    assert y.shape == grad.shape, (y.shape, grad.shape)
    y.backward(grad)
    return y.detach(), x.grad


@checks
def gather_and_its_gradient(me: Rank) -> None:
    for group in (None, _all_quantized()):
        for width in WIDTHS:
            for dtype in (torch.float32, torch.bfloat16):
                rows = _rows(width)
                parts = _parts(me, rows, 2, width, dtype=dtype)
                grads = _parts(me, rows * me.size, 2, width, dtype=dtype, seed=1)
                y, grad = _differentiate(
                    lambda x, g=group: sp.gather_from_sequence_parallel_region(x, group=g),
                    parts[me.rank],
                    grads[me.rank],
                )
                equal(y, row_oracle.gathered(parts))
                equal(grad, row_oracle.reduce_scattered(grads, [rows] * me.size)[me.rank])


@checks
def gather_of_uneven_parts(me: Rank) -> None:
    for group in (None, _all_quantized()):
        for width in WIDTHS:
            sizes = [_rows(width) + 5 * rank for rank in range(me.size)]
            parts = [data(rank, size, 2, width) for rank, size in enumerate(sizes)]
            grads = _parts(me, sum(sizes), 2, width, seed=1)
            y, grad = _differentiate(
                lambda x, g=group, s=sizes: sp.gather_from_sequence_parallel_region(
                    x, group=g, output_split_sizes=s
                ),
                parts[me.rank],
                grads[me.rank],
            )
            equal(y, row_oracle.gathered(parts))
            equal(grad, row_oracle.reduce_scattered(grads, sizes)[me.rank])


@checks
def a_part_may_be_empty(me: Rank) -> None:
    sizes = [0] + [_rows(200)] * (me.size - 1)
    parts = [data(rank, size, 200) for rank, size in enumerate(sizes)]
    grads = _parts(me, sum(sizes), 200, seed=1)
    y, grad = _differentiate(
        lambda x: sp.gather_from_sequence_parallel_region(x, output_split_sizes=sizes),
        parts[me.rank],
        grads[me.rank],
    )
    equal(y, row_oracle.gathered(parts))
    equal(grad, row_oracle.reduce_scattered(grads, sizes)[me.rank])


@checks
def reduce_scatter_and_its_gradient(me: Rank) -> None:
    for width in WIDTHS:
        for sizes in (None, [_rows(width) + 3 * rank for rank in range(me.size)]):
            rows = sizes or [_rows(width)] * me.size
            inputs = _parts(me, sum(rows), width)
            grads = [data(rank, n, width, seed=1) for rank, n in enumerate(rows)]
            y, grad = _differentiate(
                lambda x, s=sizes: sp.reduce_scatter_to_sequence_parallel_region(
                    x, input_split_sizes=s
                ),
                inputs[me.rank],
                grads[me.rank],
            )
            equal(y, row_oracle.reduce_scattered(inputs, rows)[me.rank])
            equal(grad, row_oracle.gathered(grads))


@checks
def split_of_the_sequence(me: Rank) -> None:
    rows = _rows(200)
    x, grads = data(0, rows * me.size, 200), _parts(me, rows, 200, seed=1)
    y, grad = _differentiate(sp.scatter_to_sequence_parallel_region, x, grads[me.rank])
    equal(y, x[me.rank * rows : (me.rank + 1) * rows])
    equal(grad, row_oracle.gathered(grads))


@checks
def gather_for_replicated_work_splits_the_gradient(me: Rank) -> None:
    rows = _rows(200)
    parts, common = _parts(me, rows, 200), data(9, rows * me.size, 200)
    y, grad = _differentiate(
        lambda x: sp.gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False),
        parts[me.rank],
        common,
    )
    equal(y, row_oracle.gathered(parts))
    equal(grad, common[me.rank * rows : (me.rank + 1) * rows])


@checks
def last_dimension(me: Rank) -> None:
    rows, width = _rows(72), 72
    parts, grads = _parts(me, rows, width), _parts(me, rows, width * me.size, seed=1)
    pieces = [list(g.split(width, dim=-1)) for g in grads]
    beside = torch.cat(row_oracle.gathered(parts).chunk(me.size), dim=-1)
    below = [torch.cat(row) for row in pieces]
    summed = row_oracle.reduce_scattered(below, [rows] * me.size)[me.rank]

    y, grad = _differentiate(
        sp.all_gather_last_dim_from_tensor_parallel_region, parts[me.rank], grads[me.rank]
    )
    equal(y, beside)
    equal(grad, summed)
    y, grad = _differentiate(
        sp.reduce_scatter_last_dim_to_tensor_parallel_region, grads[me.rank], parts[me.rank]
    )
    equal(y, summed)
    equal(grad, beside)
    y, grad = _differentiate(sp.scatter_to_tensor_model_parallel_region, grads[0], parts[me.rank])
    equal(y, pieces[0][me.rank].contiguous())
    equal(grad, beside)
    y, grad = _differentiate(sp.gather_from_tensor_model_parallel_region, parts[me.rank], grads[0])
    equal(y, beside)
    equal(grad, pieces[0][me.rank].contiguous())


@checks
def sums_of_the_tensor_parallel_region(me: Rank) -> None:
    inputs, grads = _parts(me, 160, 128), _parts(me, 160, 128, seed=1)
    y, grad = _differentiate(
        sp.reduce_from_tensor_model_parallel_region, inputs[me.rank], grads[me.rank]
    )
    equal(y, quantized_all_reduce(inputs))
    equal(grad, grads[me.rank])
    y, grad = _differentiate(
        sp.copy_to_tensor_model_parallel_region, inputs[me.rank], grads[me.rank]
    )
    equal(y, inputs[me.rank])
    equal(grad, quantized_all_reduce(grads))


@checks
def sums_with_short_tails(me: Rank) -> None:
    """Rows are dealt to owners, who encode the sum once more."""
    inputs = _parts(me, _rows(200), 200)
    y = sp.reduce_from_tensor_model_parallel_region(inputs[me.rank].clone())
    sizes = [len(part) for part in torch.arange(len(inputs[0])).tensor_split(me.size)]
    equal(y, row_oracle.gathered(row_oracle.reduce_scattered(inputs, sizes)))


@checks
def the_input_stays_as_it_was(me: Rank) -> None:
    x = data(me.rank, 160, 128)
    kept = x.clone()
    sp.reduce_from_tensor_model_parallel_region(x)
    sp.gather_from_sequence_parallel_region(x)
    equal(x, kept)


@checks
def each_direction_is_quantized_on_its_own(me: Rank) -> None:
    for group in (None, _all_quantized()):
        for width in (256, 200):
            rows = _rows(width)
            sizes = [rows] * me.size
            for dtype in (torch.float32, torch.bfloat16):
                parts = _parts(me, rows, width, dtype=dtype)
                grads = _parts(me, rows * me.size, width, dtype=dtype, seed=1)
                exact = row_oracle.exact_sum(grads).split(sizes)[me.rank]
                encoded = row_oracle.reduce_scattered(grads, sizes)[me.rank]
                for policy in (sp.EXACT, FORWARD_ONLY, BACKWARD_ONLY):
                    y, grad = _differentiate(
                        lambda x, g=group, p=policy: sp.gather_from_sequence_parallel_region(
                            x, group=g, policy=p
                        ),
                        parts[me.rank],
                        grads[me.rank],
                    )
                    equal(y, row_oracle.gathered(parts) if policy.forward else torch.cat(parts))
                    equal(grad, encoded if policy.backward else exact.contiguous())


@checks
def exact_sums_are_the_same_on_all_ranks(me: Rank) -> None:
    inputs = _parts(me, _rows(200), 200, dtype=torch.bfloat16)
    with sp.use_policy(sp.EXACT):
        y = sp.reduce_from_tensor_model_parallel_region(inputs[me.rank].clone())
    equal(y, row_oracle.exact_sum(inputs))


@checks
def the_default_policy_can_be_chosen(me: Rank) -> None:
    parts = _parts(me, _rows(200), 200)
    assert sp.default_policy() == sp.QuantizationPolicy()
    with sp.use_policy(sp.EXACT):
        equal(sp.gather_from_sequence_parallel_region(parts[me.rank]), torch.cat(parts))
    equal(sp.gather_from_sequence_parallel_region(parts[me.rank]), row_oracle.gathered(parts))
