"""Megatron-LM's own mappings beside the patched ones, on the same groups and data."""

from __future__ import annotations

import functools
import warnings

import torch
import torch.distributed as dist

import agoq_comm
from agoq_comm import sequence_parallel as sp
from checks import Checks
from programs import row_oracle
from programs.common import data, equal, refused
from ranks import Rank

warnings.filterwarnings("ignore", message=".*Transformer Engine.*")
warnings.filterwarnings("ignore", message=".*Apex.*")

# Megatron allocates its results on the current CUDA device; here that is the CPU.
torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]

from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.tensor_parallel import mappings  # noqa: E402

checks = Checks()
WIDTH = 200


@functools.cache
def _initialize(size: int) -> None:
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=size)


def _cases(me: Rank):
    """(name, this rank's input, keywords) of every function."""
    rows = 16384 // WIDTH + 3
    part, whole = data(me.rank, rows, 2, WIDTH), data(me.rank, rows * me.size, 2, WIDTH)
    wide = data(me.rank, rows, WIDTH * me.size)
    sizes = [rows + 2 * rank for rank in range(me.size)]
    yield "gather_from_sequence_parallel_region", part, {}
    yield "gather_from_sequence_parallel_region", part, {"tensor_parallel_output_grad": False}
    yield (
        "gather_from_sequence_parallel_region",
        data(me.rank, sizes[me.rank], WIDTH),
        {"output_split_sizes": sizes},
    )
    yield "reduce_scatter_to_sequence_parallel_region", whole, {}
    yield (
        "reduce_scatter_to_sequence_parallel_region",
        data(me.rank, sum(sizes), WIDTH),
        {"input_split_sizes": sizes},
    )
    yield "scatter_to_sequence_parallel_region", whole, {}
    yield "all_gather_last_dim_from_tensor_parallel_region", part, {}
    yield "reduce_scatter_last_dim_to_tensor_parallel_region", wide, {}
    yield "scatter_to_tensor_model_parallel_region", wide, {}
    yield "gather_from_tensor_model_parallel_region", part, {}
    yield "copy_to_tensor_model_parallel_region", whole, {}
    yield "reduce_from_tensor_model_parallel_region", whole, {}


def _run(name: str, x: torch.Tensor, keywords: dict) -> tuple[torch.Tensor, torch.Tensor]:
    # Megatron reduces in place, and not only what it was given to.
    x = x.clone().requires_grad_()
    y = getattr(mappings, name)(x * 1.0, **keywords)
    generator = torch.Generator().manual_seed(y.numel())
    (grad,) = torch.autograd.grad(y, x, torch.randn(y.shape, generator=generator) + y.detach())
    return y.detach().clone(), grad


def _exact_group() -> dist.ProcessGroup:
    """For Megatron's own functions; Gloo gathers no parts of different sizes."""
    return dist.new_group(pg_options=agoq_comm.Options(quantize=()))


@checks
def patched_results_are_within_the_bound_of_megatrons(me: Rank) -> None:
    """Megatron's own functions, exact, against ours, quantized."""
    _initialize(me.size)
    exactly = _exact_group()
    theirs = [_run(name, x, {**keywords, "group": exactly}) for name, x, keywords in _cases(me)]
    with sp.patch_megatron():
        ours = [_run(name, x, keywords) for name, x, keywords in _cases(me)]
    for (name, x, _), right, got in zip(_cases(me), theirs, ours, strict=True):
        for exact, quantized in zip(right, got, strict=True):
            assert exact.shape == quantized.shape, name
            # Half a step of each block, for each encoding on the way: one a piece, and one more of
            # a sum that is encoded again. The largest input bounds every block's step.
            largest = float(max(exact.abs().max(), x.abs().max())) + 5
            bound = (me.size + 1) * largest / 127 * (1 + 2**-7) * 0.51
            error = float((exact - quantized).abs().max())
            assert error <= bound, (name, error, bound)
            assert float((exact - quantized).norm() / exact.norm()) < 0.02, name


@checks
def patched_and_exact_is_megatrons_own_result(me: Rank) -> None:
    _initialize(me.size)
    exactly = _exact_group()
    theirs = [_run(name, x, {**keywords, "group": exactly}) for name, x, keywords in _cases(me)]
    with sp.patch_megatron(sp.EXACT):
        ours = [_run(name, x, keywords) for name, x, keywords in _cases(me)]
    for (name, _, _), right, got in zip(_cases(me), theirs, ours, strict=True):
        for exact, mine in zip(right, got, strict=True):
            # Sums differ by their order alone.
            torch.testing.assert_close(mine, exact, rtol=1e-5, atol=1e-5, msg=name)


@checks
def the_patch_reaches_every_module_and_is_undone(me: Rank) -> None:
    _initialize(me.size)
    name = "gather_from_sequence_parallel_region"
    own = getattr(mappings, name)
    holders = [mappings, tensor_parallel, tensor_parallel.layers]
    holders = [module for module in holders if hasattr(module, name)]
    assert len(holders) >= 2
    x = data(me.rank, 100, WIDTH)
    patch = sp.patch_megatron()
    for module in holders:
        equal(
            getattr(module, name)(x),
            row_oracle.gathered([data(rank, 100, WIDTH) for rank in range(me.size)]),
        )
    with refused("patched already", RuntimeError):
        sp.patch_megatron()
    patch.undo()
    patch.undo()
    for module in holders:
        assert getattr(module, name) is own
    with sp.patch_megatron():
        assert getattr(mappings, name) is not own
    assert getattr(mappings, name) is own


@checks
def other_groups_keep_megatrons_functions(me: Rank) -> None:
    _initialize(me.size)
    gloo = dist.new_group(backend="gloo")
    x = data(me.rank, 100, WIDTH)
    exact = torch.cat([data(rank, 100, WIDTH) for rank in range(me.size)])
    with sp.patch_megatron():
        equal(mappings.gather_from_sequence_parallel_region(x, True, gloo), exact)
        equal(mappings.gather_from_sequence_parallel_region(x, group=gloo), exact)
        assert not torch.equal(mappings.gather_from_sequence_parallel_region(x), exact)


@checks
def megatrons_linear_layers_are_served(me: Rank) -> None:
    """They call the collectives themselves; results are near those over gloo."""
    _initialize(me.size)
    results = []
    everything = ("all_reduce", "reduce_scatter", "all_gather")
    agoq = dist.new_group(pg_options=agoq_comm.Options(quantize=everything))
    for group in (dist.new_group(backend="gloo"), agoq):
        x = data(me.rank, 64, 4, 256).requires_grad_()
        weight = (data(me.rank, 256, 256, seed=4) / 16).requires_grad_()
        y = tensor_parallel.layers.LinearWithGradAccumulationAndAsyncCommunication.apply(
            x, weight, None, False, False, True, None, None, group
        )
        y.backward(torch.ones_like(y))
        results.append((y.detach(), x.grad, weight.grad))
    for exact, quantized in zip(*results, strict=True):
        assert 0 < float((exact - quantized).norm() / exact.norm()) < 0.02
    stats = agoq_comm.stats(agoq)
    assert stats["all_gather"]["quantized_calls"] == 2
    assert stats["reduce_scatter"]["quantized_calls"] == 1
