"""What holds for all of Megatron's functions: the contract, gradients, counters, mistakes."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.nn.functional as F

import agoq_comm
from agoq_comm import sequence_parallel as sp
from checks import Checks
from programs.common import data, equal, refused
from programs.row_oracle import BLOCK
from programs.sequence_regions import _all_quantized, _differentiate, _rows
from ranks import Rank

checks = Checks()


@checks
def what_the_contract_says_is_exact(me: Rank) -> None:
    """Few elements, doubles, integers, and vectors, which have no hidden dimension."""
    for shape, dtype in (
        ((4, 64), torch.float32),
        ((400, 64), torch.float64),
        ((400, 64), torch.int32),
        ((30_000,), torch.float32),
    ):
        parts = [(100 * data(rank, *shape)).to(dtype) for rank in range(me.size)]
        y = sp.gather_from_sequence_parallel_region(parts[me.rank], group=_all_quantized())
        equal(y, torch.cat(parts))
        whole = [torch.cat([part] * me.size) for part in parts]
        z = sp.reduce_scatter_to_sequence_parallel_region(whole[me.rank], _all_quantized())
        torch.testing.assert_close(z, sum(parts[1:], parts[0]))


@checks
def exact_gradients_are_right(me: Rank) -> None:
    """Gradcheck on the sum of all ranks' results, which is what the functions differentiate."""

    def total(function):
        def of_all(x):
            y = function(x)
            weights = torch.linspace(1, 2, y.numel(), dtype=y.dtype).view(y.shape)
            return sp.reduce_from_tensor_model_parallel_region((weights * y * y).sum().view(1, 1))

        return of_all

    torch.manual_seed(0)
    x = torch.randn(me.size * 2, me.size * 3, dtype=torch.float64)
    # Each perturbs the same element of its own input; replicas perturb the same number.
    split, replicas = (
        (
            sp.gather_from_sequence_parallel_region,
            sp.reduce_scatter_to_sequence_parallel_region,
            sp.all_gather_last_dim_from_tensor_parallel_region,
            sp.reduce_scatter_last_dim_to_tensor_parallel_region,
        ),
        (
            sp.scatter_to_sequence_parallel_region,
            sp.scatter_to_tensor_model_parallel_region,
            sp.copy_to_tensor_model_parallel_region,
        ),
    )
    for function in replicas:
        assert torch.autograd.gradcheck(total(function), x.clone().requires_grad_())
    for function in split:
        # With equal inputs and equal perturbations on all ranks the derivative of the total is the
        # sum of all ranks' gradients.
        def summed(x, function=function):
            return total(function)(sp.copy_to_tensor_model_parallel_region(x))

        assert torch.autograd.gradcheck(summed, x.clone().requires_grad_())


def _half_steps(x: torch.Tensor, width: int) -> torch.Tensor:
    """By how much each element may err when rows of `width` are encoded, in fp64."""
    rows = F.pad(x.double().abs().reshape(-1, width), (0, -width % BLOCK))
    largest = rows.unflatten(1, (-1, BLOCK)).amax(2, keepdim=True)
    steps = (largest / 127 * (1 + 2**-7)).expand(-1, -1, BLOCK).flatten(1)
    return 0.5001 * steps[:, :width].reshape(x.shape)


@checks
def gradients_stay_within_the_propagated_bound(me: Rank) -> None:
    """Against fp64. What travels on the way back errs by half a step of its block.

    The ways back add what they are given, and so they do with the errors: the bound is what the
    exact way back makes of the half steps.
    """
    width = 200
    rows = _rows(width)
    long, wide = (rows * me.size, width), (rows, width * me.size)
    for function, shape in (
        (sp.gather_from_sequence_parallel_region, (rows, width)),
        (sp.reduce_scatter_to_sequence_parallel_region, long),
        (sp.scatter_to_sequence_parallel_region, long),
        (sp.all_gather_last_dim_from_tensor_parallel_region, (rows, width)),
        (sp.reduce_scatter_last_dim_to_tensor_parallel_region, wide),
        (sp.scatter_to_tensor_model_parallel_region, wide),
        (sp.copy_to_tensor_model_parallel_region, (rows, width)),
    ):
        x = data(me.rank, *shape)
        grad = data(me.rank, *function(x).shape, seed=1)
        _, actual = _differentiate(function, x, grad)
        _, exact = _differentiate(function, x.double(), grad.double())
        _, bound = _differentiate(function, x.double(), _half_steps(grad, width))
        if function is sp.copy_to_tensor_model_parallel_region:
            bound += _half_steps(exact.abs() + bound, width)  # The sum is encoded again.
        error = (actual.double() - exact).abs()
        assert bool((error <= bound + 1e-6).all()), function.__name__
        assert float(error.max()) > 0.1 * float(bound.max()), function.__name__


@checks
def all_ranks_get_the_same_bits(me: Rank) -> None:
    x = data(me.rank, _rows(200), 200)
    for y in (
        sp.gather_from_sequence_parallel_region(x),
        sp.reduce_from_tensor_model_parallel_region(x),
    ):
        everyone = [torch.empty_like(y) for _ in range(me.size)]
        dist.all_gather(everyone, y)
        for other in everyone:
            equal(other, y)


@checks
def a_nan_is_seen_by_all_ranks(me: Rank) -> None:
    x = data(me.rank, _rows(200), 200)
    if me.rank == 0:
        x[3, 150] = float("inf")
    y = sp.gather_from_sequence_parallel_region(x)
    # The short block of that row, and no other row.
    assert bool(y[3, 128:].isnan().all()) and int(y.isnan().sum()) == 72


@checks
def bytes_of_a_layer(me: Rank) -> None:
    """A layer's four collectives and their gradients carry at most 0.51 of what bf16 would."""
    group = dist.new_group(
        pg_options=agoq_comm.Options(quantize=("all_reduce", "reduce_scatter", "all_gather"))
    )
    x = data(me.rank, 128, 256, dtype=torch.bfloat16).requires_grad_()
    for _ in range(2):
        whole = sp.gather_from_sequence_parallel_region(x, group=group)
        part = sp.reduce_scatter_to_sequence_parallel_region(whole, group=group)
        part.sum().backward()
    stats = agoq_comm.stats(group)
    assert set(stats) == {"all_gather", "reduce_scatter"}, stats
    sent = sum(stats[op]["wire_bytes"] for op in stats)
    exact = sum(stats[op]["exact_bytes"] for op in stats)
    assert exact == 8 * (me.size - 1) * 128 * 256 * 2
    assert sent <= 0.51 * exact, (sent, exact)


@checks
def short_tails_do_not_travel_padded(me: Rank) -> None:
    group = dist.new_group()
    rows = _rows(200)
    sp.gather_from_sequence_parallel_region(data(me.rank, rows, 200), group=group)
    assert agoq_comm.stats(group)["all_gather"]["wire_bytes"] == (me.size - 1) * rows * 204


@checks
def stochastic_rounding_is_unbiased_and_never_repeats_a_draw(me: Rank) -> None:
    options = agoq_comm.Options(rounding="stochastic", seed=5)
    group = dist.new_group(pg_options=options)
    x = torch.full((170, 100), 0.3)
    x[:, 0] = 1.0
    results = [sp.gather_from_sequence_parallel_region(x, group=group) for _ in range(20)]
    assert not torch.equal(results[0], results[1])
    mean = torch.stack(results).double()[:, :, 1:].mean()
    assert abs(float(mean) - 0.3) < 5e-5, mean


@checks
def mistakes_are_named(me: Rank) -> None:
    x = data(me.rank, 2 * me.size + 1, 8)
    deep = data(me.rank, me.size + 1, me.size, 8)
    gloo = dist.new_group(backend="gloo")
    dist.barrier(gloo)  # A rank that went on alone would take its connections with it.
    cases = (
        (lambda: sp.reduce_scatter_to_sequence_parallel_region(x), "no multiple of the"),
        (lambda: sp.scatter_to_sequence_parallel_region(x), "no multiple of the"),
        (lambda: sp.reduce_scatter_last_dim_to_tensor_parallel_region(x[:, :1]), "no multiple of"),
        (
            lambda: sp.gather_from_sequence_parallel_region(x, output_split_sizes=[1] * me.size),
            "output_split_sizes says 1 for this rank",
        ),
        # In the terms of the caller's tensor, not of the matrix that it is to the exchange.
        (lambda: sp.reduce_scatter_to_sequence_parallel_region(deep), f"{me.size + 1}, is no"),
        (
            lambda: sp.reduce_scatter_to_sequence_parallel_region(
                deep, input_split_sizes=[1] * me.size
            ),
            f"sum to {me.size}, but the first dimension is {me.size + 1}",
        ),
        (
            lambda: sp.gather_from_sequence_parallel_region(deep, output_split_sizes=[1] * me.size),
            f"the first dimension of its tensor is {me.size + 1}",
        ),
        (
            lambda: sp.gather_from_sequence_parallel_region(x, output_split_sizes=[len(x)]),
            "must be one for each of the",
        ),
        (
            lambda: sp.reduce_scatter_to_sequence_parallel_region(
                x, input_split_sizes=[1] * me.size
            ),
            "the split sizes sum to",
        ),
        (
            lambda: sp.gather_from_sequence_parallel_region(
                x, tensor_parallel_output_grad=False, output_split_sizes=[len(x)] * me.size
            ),
            "of use only with tensor_parallel_output_grad=True",
        ),
        (
            lambda: sp.gather_from_sequence_parallel_region(x, group=gloo),
            "the group's backend is 'gloo', not 'agoq'",
        ),
        (lambda: sp.gather_from_sequence_parallel_region(torch.tensor(1.0)), "without dimensions"),
    )
    for call, words in cases:
        with refused(words):
            call()


@checks
def one_rank_returns_its_input(me: Rank) -> None:
    alone = [dist.new_group([rank]) for rank in range(me.size)][me.rank]
    x = data(me.rank, 40, 512).requires_grad_()
    for name in sp.__all__:
        if name.endswith("_region"):
            assert getattr(sp, name)(x, group=alone) is x


@checks
def compiles_without_a_graph_break(me: Rank) -> None:
    weight = data(7, 256, 256, seed=3) / 16

    def block(x):
        whole = sp.gather_from_sequence_parallel_region(x)
        y = sp.copy_to_tensor_model_parallel_region(torch.relu(whole @ weight))
        part = sp.reduce_scatter_to_sequence_parallel_region(y)
        return sp.all_gather_last_dim_from_tensor_parallel_region(part)

    x = data(me.rank, 96, 256)
    grad = data(me.rank, 96, 256 * me.size, seed=2)
    expected = _differentiate(block, x, grad)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for actual, right in zip(_differentiate(compiled, x, grad), expected, strict=True):
        equal(actual, right)


@checks
def what_is_waited_for_at_once_runs_on_the_callers_thread(me: Rank) -> None:
    """Two threads that wake each other take as long as a short collective."""
    group = _all_quantized()
    x, weight = data(me.rank, me.size * 40, BLOCK), torch.ones(BLOCK)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        part = sp.reduce_scatter_to_sequence_parallel_region(x, group=group)
        sp.gather_from_sequence_parallel_region(part, group=group)
        _, normed = sp.reduce_scatter_norm(x, part, weight, group=group)
        sp.gather_normed(normed, group)
    names = [e.name for e in profile.events() if e.name.startswith("agoq:")]
    calls = [name for name in names if not name.startswith("agoq::")]
    assert calls == ["agoq:reduce_scatter", "agoq:all_gather"] * 2, names


@checks
def ranks_whose_widths_differ_hear_of_it(me: Rank) -> None:
    x = data(me.rank, 40, BLOCK + 2 * (me.rank == 0))
    with refused("called all_gather with", dist.DistBackendError):
        sp.gather_from_sequence_parallel_region(x, group=_all_quantized())
