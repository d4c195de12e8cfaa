"""Ways from micro-batches to an optimizer step, for train_parallel_llama.py to compare.

Each is told of micro-batches by `micro_batch`, a context for their backward passes, and clips and
steps in `finish`. `windows` is how many windows of a micro-batch it wants in a backward pass, all
where it is None. `errors_of_sums` tells what it measured of its sums beside, if anything.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

import agoq_comm
from agoq_comm.gradients import ChunkedOptimizer, GradientClipping, QuantizedGradients


class ExactStep:
    """Gradients accumulate in fp32 and are averaged exactly: the baseline."""

    windows: int | None = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        replicas: dist.ProcessGroup,
        clipping: GradientClipping,
    ) -> None:
        self._parameters = list(model.parameters())
        self._optimizer = optimizer
        self._replicas = replicas
        self._clipping = clipping

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Nothing to do: autograd accumulates by itself."""
        del last
        return contextlib.nullcontext()

    def errors_of_sums(self) -> dict[str, float]:
        """Nothing is measured."""
        return {}

    def average(self) -> None:
        """Average over the replicas; fp64 sums always travel exactly."""
        for parameter in self._parameters:
            total = parameter.grad.double()
            dist.all_reduce(total, group=self._replicas)
            parameter.grad.copy_(total / self._replicas.size())

    def finish(self) -> None:
        """Average, clip, step."""
        self.average()
        squares = torch.zeros((), dtype=torch.float64)
        for parameter in self._parameters:
            if self._clipping.counts(parameter):
                squares += parameter.grad.double().square().sum()
        dist.all_reduce(squares, group=self._clipping.group)
        norm = squares.sqrt().item()
        if norm > self._clipping.max_norm:
            for parameter in self._parameters:
                parameter.grad.mul_(self._clipping.max_norm / norm)
        self._optimizer.step()
        self._optimizer.zero_grad()


class EncodedStep:
    """Gradients live in 8 bits from the backward pass to the optimizer."""

    windows = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        replicas: dist.ProcessGroup,
        clipping: GradientClipping,
    ) -> None:
        self._gradients = QuantizedGradients(model, replicas, bucket_numel=2**18)
        self._optimizer = ChunkedOptimizer(optimizer, self._gradients, clipping)

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Buckets are sent during the last backward pass; those before it only add."""
        return contextlib.nullcontext() if last else self._gradients.no_sync()

    def errors_of_sums(self) -> dict[str, float]:
        """Nothing is measured."""
        return {}

    def finish(self) -> None:
        """Reduce, clip, step."""
        self._optimizer.step()
        self._optimizer.zero_grad()


class NarrowStep(ExactStep):
    """A control that must do worse: micro-batches are added in int8.

    The first one's scales are used for the sum, whose codes saturate: what a design does that keeps
    codes and never returns to fp32. Replicas are averaged exactly.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        replicas: dist.ProcessGroup,
        clipping: GradientClipping,
    ) -> None:
        super().__init__(model, optimizer, replicas, clipping)
        self._sums: dict[torch.Tensor, tuple[torch.Tensor, torch.Tensor]] = {}
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._take)

    def _take(self, parameter: torch.Tensor) -> None:
        flat = parameter.grad.reshape(-1)
        parameter.grad = None
        if parameter not in self._sums:
            encoded = agoq_comm.encode(flat)
            steps = encoded.scales.float().repeat_interleave(encoded.block)[: flat.numel()]
            self._sums[parameter] = (encoded.codes.clone(), steps)
            return
        codes, steps = self._sums[parameter]
        addend = torch.where(steps > 0, flat / steps, 0).round()
        codes.copy_((codes + addend).clamp(-127, 127))

    def finish(self) -> None:
        """Decode, then as exactly as the baseline."""
        for parameter, (codes, steps) in self._sums.items():
            parameter.grad = (codes * steps).view(parameter.shape)
        self._sums.clear()
        super().finish()


def ring_reduce_scatter(pieces: Sequence[torch.Tensor], format: str = "int8") -> torch.Tensor:
    """Sum as a ring does whose members each decode, add their piece and encode the partial sum.

    The last member is the owner of the sum, which keeps it in fp32.
    """
    total = pieces[0]
    for piece in pieces[1:]:
        total = agoq_comm.decode(agoq_comm.encode(total, format=format)) + piece
    return total


def ring_all_reduce(pieces: Sequence[torch.Tensor], format: str = "int8") -> torch.Tensor:
    """Sum round the same ring, whose owner encodes the sum for all."""
    total = ring_reduce_scatter(pieces, format)
    return agoq_comm.decode(agoq_comm.encode(total, format=format))


def reduce_scatter_sum(pieces: Sequence[torch.Tensor], format: str = "int8") -> torch.Tensor:
    """Sum as this library's reduce-scatter does: pieces are encoded once, their sum is fp32.

    The library leaves the owner's piece as it is; here it is encoded too.
    """
    return agoq_comm.sum_decode([agoq_comm.encode(piece, format=format) for piece in pieces])


def all_reduce_sum(pieces: Sequence[torch.Tensor], format: str = "int8") -> torch.Tensor:
    """Sum as this library's all-reduce does: pieces are encoded once, and so is their fp32 sum."""
    encoded = [agoq_comm.encode(piece, format=format) for piece in pieces]
    return agoq_comm.decode(agoq_comm.sum_encode(encoded))


Sum = Callable[[Sequence[torch.Tensor], str], torch.Tensor]


class ManyRanksStep(ExactStep):
    """Gradients are reduced as many ranks would: each window of each replica is one of them.

    Their gradients travel exactly to where that is computed. The first of `ways` makes the step;
    the errors of all are measured.
    """

    windows = 1

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        replicas: dist.ProcessGroup,
        clipping: GradientClipping,
        *,
        ways: dict[str, Sum],
        format: str,
    ) -> None:
        super().__init__(model, optimizer, replicas, clipping)
        self._ways = ways
        self._format = format
        self._pieces: dict[torch.Tensor, list[torch.Tensor]] = {p: [] for p in self._parameters}
        self._errors: dict[str, list[float]] = {name: [] for name in ways}
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._take)

    def _take(self, parameter: torch.Tensor) -> None:
        self._pieces[parameter].append(parameter.grad.reshape(-1))
        parameter.grad = None

    def average(self) -> None:
        """Sum each parameter's pieces."""
        size = self._replicas.size()
        square, lost = 0.0, dict.fromkeys(self._ways, 0.0)
        for parameter, own in self._pieces.items():
            mine = torch.stack(own)
            own.clear()
            everyones = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(everyones, mine, group=self._replicas)
            pieces = torch.cat(everyones)
            exact = pieces.double().sum(0)
            square += exact.square().sum().item()
            for name, way in self._ways.items():
                total = way(list(pieces), self._format)
                lost[name] += (total - exact).square().sum().item()
                if parameter.grad is None:
                    parameter.grad = (total / size).view(parameter.shape)
        for name, squares in lost.items():
            self._errors[name].append(math.sqrt(squares / square))

    def errors_of_sums(self) -> dict[str, float]:
        """Mean over the steps of the relative L2 error of all gradients of this rank."""
        return {name: statistics.fmean(errors) for name, errors in self._errors.items()}


STEPS: dict[str, Callable[..., ExactStep | EncodedStep]] = {
    "exact": ExactStep,
    "encoded": EncodedStep,
    "narrow": NarrowStep,
    "ring": partial(
        ManyRanksStep,
        ways={"ring": ring_all_reduce, "all-reduce": all_reduce_sum},
        format="int8",
    ),
    "reduce-scatter-fp4": partial(
        ManyRanksStep, ways={"reduce-scatter": reduce_scatter_sum}, format="fp4"
    ),
    "ring-fp4": partial(
        ManyRanksStep,
        ways={"ring": ring_reduce_scatter, "reduce-scatter": reduce_scatter_sum},
        format="fp4",
    ),
}
