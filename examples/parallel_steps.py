"""Ways from micro-batches to an optimizer step, for train_parallel_llama.py to compare.

Each is told of micro-batches by `micro_batch`, a context for their backward passes, and clips and
steps in `finish`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import nn

import agoq_comm
from agoq_comm.gradients import ChunkedOptimizer, GradientClipping, QuantizedGradients


class ExactStep:
    """Gradients accumulate in fp32 and are averaged exactly: the baseline."""

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


STEPS: dict[str, Callable[..., ExactStep | EncodedStep]] = {
    "exact": ExactStep,
    "encoded": EncodedStep,
    "narrow": NarrowStep,
}
