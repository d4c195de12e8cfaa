"""Optimizers that see few gradients at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from agoq_comm._single_tensor import all_gather_single
from agoq_comm.gradients.bucket import Bucket
from agoq_comm.gradients.layout import Tile
from agoq_comm.gradients.quantized_gradients import QuantizedGradients


@dataclass(frozen=True)
class GradientClipping:
    """How the global norm is limited.

    Parameters
    ----------
    max_norm : float
        Gradients of a larger norm are scaled down to it.
    group : ProcessGroup, optional
        Ranks that hold further parts of the model, as in tensor parallelism: their parts count too.
    counts : callable, optional
        Tells for a parameter whether this rank counts it; what several ranks of `group` hold alike
        must be counted by one of them. All by default.
    """

    max_norm: float
    group: dist.ProcessGroup | None = None
    counts: Callable[[nn.Parameter], bool] = lambda parameter: True


class _EncodedStep(ABC):
    """What both optimizers share: the norm, clipping, and a face that a GradScaler can use.

    A scaler divides the gradients of ``param_groups`` and looks for infinities in them. It is shown
    a witness: a parameter whose gradient is the pair (global norm, 1). An infinity anywhere makes
    the norm NaN, and after the division the second number is the factor for all gradients.
    """

    def __init__(
        self, gradients: QuantizedGradients, clipping: GradientClipping | float | None
    ) -> None:
        self.gradients = gradients
        if isinstance(clipping, int | float):
            clipping = GradientClipping(clipping)
        self._clipping = clipping
        self._witness = nn.Parameter(torch.zeros(2, device=gradients.device))
        self._step_of_witness = gradients.steps

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """For a GradScaler alone; settings are those of the optimizer inside, `optimizer`."""
        self._summon_witness()
        return [{"params": [self._witness]}]

    @property
    def gradient_norm(self) -> float:
        """Global norm of the reduced gradients, before clipping, unscaled if a scaler did that.

        Collective the first time in a step: every rank asks, or none.
        """
        self._summon_witness()
        assert self._witness.grad is not None
        return float(self._witness.grad[0])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Begin the next step."""
        del set_to_none
        self._witness.grad = None
        self.gradients.zero_grad()

    @torch.no_grad()
    def step(self) -> None:
        """Reduce if that has not been done, clip, and step bucket by bucket."""
        self._forget_last_step()
        factor = 1.0
        if self._clipping is not None or self._witness.grad is not None:
            self._summon_witness()
            assert self._witness.grad is not None
            norm, factor = self._witness.grad.tolist()
            if self._clipping is not None and norm > self._clipping.max_norm:
                factor *= self._clipping.max_norm / norm
        self._reduce()
        self._step(factor)

    def _reduce(self) -> None:
        if not self.gradients.is_reduced:
            self.gradients.reduce()

    def _forget_last_step(self) -> None:
        """What the witness says is of one step, which may have ended without our `zero_grad`."""
        if self._step_of_witness != self.gradients.steps:
            self._witness.grad = None
            self._step_of_witness = self.gradients.steps

    def _summon_witness(self) -> None:
        self._forget_last_step()
        self._reduce()
        if self._witness.grad is None:
            norm = self._norm().float()
            self._witness.grad = torch.stack([norm, torch.ones_like(norm)])

    def _norm(self) -> torch.Tensor:
        squares = torch.zeros((), dtype=torch.float64, device=self.gradients.device)
        counts = None if self._clipping is None else self._clipping.counts
        for parameter, gradient in self._own_gradients():
            if counts is None or counts(parameter):
                squares += torch.linalg.vector_norm(gradient, dtype=torch.float64) ** 2
        for group in self._norm_groups():
            dist.all_reduce(squares, group=group)
        return squares.sqrt()

    def _norm_groups(self) -> list[dist.ProcessGroup]:
        beyond = None if self._clipping is None else self._clipping.group
        return [] if beyond is None else [beyond]

    @abstractmethod
    def _own_gradients(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yield the reduced gradients that this rank counts for the norm, in fp32."""

    @abstractmethod
    def _step(self, factor: float) -> None:
        """Step with all gradients times `factor`."""


def _dtype_for(factor: float) -> torch.dtype | None:
    """What to decode gradients to that are to be multiplied; None for their parameter's type.

    A scaled sum need not fit in fp16 where the gradient itself does.
    """
    return None if factor == 1.0 else torch.float32


def _times(factor: float, gradient: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return gradient if factor == 1.0 else gradient.mul_(factor).to(dtype)


class ChunkedOptimizer(_EncodedStep):
    """Steps an optimizer bucket by bucket, so that only one bucket's gradients are ever decoded.

    The optimizer must treat each parameter by itself, as SGD, Adam and their like do: its ``step``
    is called once for each bucket, with ``.grad`` set for that bucket's parameters alone. Step it,
    zero it and show it to a GradScaler; learning-rate schedules and checkpoints take `optimizer`.

    Parameters
    ----------
    optimizer : Optimizer
        Of parameters that `gradients` holds.
    gradients : QuantizedGradients
        With ``result="all_reduce"``.
    clipping : float or GradientClipping, optional
        Largest global norm.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        gradients: QuantizedGradients,
        clipping: GradientClipping | float | None = None,
    ) -> None:
        if gradients.result != "all_reduce":
            raise ValueError(
                'agoq_comm: ChunkedOptimizer takes gradients with result="all_reduce"; '
                'ShardedOptimizer takes those with result="reduce_scatter".'
            )
        super().__init__(gradients, clipping)
        self.optimizer = optimizer
        self._known = set(gradients.parameters)
        self._refuse_strangers()

    def _refuse_strangers(self) -> None:
        """Also before each step: a frozen parameter may have been thawed."""
        for group in self.optimizer.param_groups:
            if any(p.requires_grad and p not in self._known for p in group["params"]):
                raise ValueError(
                    "agoq_comm: the optimizer has a parameter that the gradients were not made "
                    "for; it would be stepped once for each bucket."
                )

    def _own_gradients(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for parameter in self.gradients.parameters:
            gradient = self.gradients.gradient(parameter, torch.float32)
            if gradient is not None:
                yield parameter, gradient

    def _step(self, factor: float) -> None:
        self._refuse_strangers()
        for bucket in self.gradients.buckets:
            members = [self.gradients.parameters[index] for index in bucket.layout.parameters]
            for parameter in members:
                gradient = self.gradients.gradient(parameter, _dtype_for(factor))
                if gradient is not None:
                    parameter.grad = _times(factor, gradient, parameter.dtype)
            self.optimizer.step()
            for parameter in members:
                parameter.grad = None


class ShardedOptimizer(_EncodedStep):
    """Each rank steps the shards whose gradients it owns, then all gather the parameters: ZeRO-1.

    Optimizer state is that of 1/p of the parameters. Parameters travel exactly.

    Parameters
    ----------
    params : iterable of Parameter or of dict
        As torch's optimizers take them.
    optimizer_class : callable
        Makes the optimizer from groups of shards; it must treat each element by itself.
    gradients : QuantizedGradients
        With ``result="reduce_scatter"``.
    clipping : float or GradientClipping, optional
        Largest global norm.
    **defaults
        For `optimizer_class`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: Callable[..., torch.optim.Optimizer],
        gradients: QuantizedGradients,
        clipping: GradientClipping | float | None = None,
        **defaults: Any,
    ) -> None:
        if gradients.result != "reduce_scatter":
            raise ValueError(
                'agoq_comm: ShardedOptimizer takes gradients with result="reduce_scatter".'
            )
        super().__init__(gradients, clipping)
        rank = gradients.group.rank()
        self._shards: dict[tuple[int, int], nn.Parameter] = {}
        of_parameter: dict[nn.Parameter, list[nn.Parameter]] = {
            parameter: [] for parameter in gradients.parameters
        }
        for bucket in gradients.buckets:
            for tile in bucket.layout.of_owner(rank):
                parameter = gradients.parameters[tile.parameter]
                if not parameter.is_contiguous():
                    raise ValueError("agoq_comm: a parameter that is sharded must be contiguous.")
                shard = nn.Parameter(self._memory_of(tile))
                self._shards[tile.parameter, tile.start] = shard
                of_parameter[parameter].append(shard)
        self.optimizer = optimizer_class(_groups_of_shards(params, of_parameter), **defaults)

    def _memory_of(self, tile: Tile) -> torch.Tensor:
        """What a shard shares with its parameter: a step of the one is a step of the other."""
        return self.gradients.parameters[tile.parameter].detach().view(-1)[tile.start : tile.stop]

    def _norm_groups(self) -> list[dist.ProcessGroup]:
        return [self.gradients.group, *super()._norm_groups()]

    def _own_gradients(self) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        for bucket in self.gradients.buckets:
            for tile, gradient in self.gradients.shards(bucket, torch.float32):
                yield self.gradients.parameters[tile.parameter], gradient

    def _step(self, factor: float) -> None:
        for bucket in self.gradients.buckets:
            stepped = []
            for tile, gradient in self.gradients.shards(bucket, _dtype_for(factor)):
                shard = self._shards[tile.parameter, tile.start]
                shard.data = self._memory_of(tile)  # It may have been replaced, as loading does.
                shard.grad = _times(factor, gradient, shard.dtype)
                stepped.append(shard)
            self.optimizer.step()
            for shard in stepped:
                shard.grad = None
            self._gather_parameters(bucket)

    def _gather_parameters(self, bucket: Bucket) -> None:
        """Bring every rank's shards of a bucket to all, exactly: as bytes."""
        group = self.gradients.group
        layout = bucket.layout
        owned = [layout.of_owner(rank) for rank in range(group.size())]
        longest = max(sum(tile.numel for tile in tiles) for tiles in owned)
        mine = bucket.data.new_zeros(longest, dtype=layout.dtype)
        for tile, part in _parts(owned[group.rank()], mine):
            part.copy_(self._memory_of(tile))
        everyone = mine.new_empty(group.size() * longest)
        all_gather_single(everyone.view(torch.uint8), mine.view(torch.uint8), group=group)
        for rank, tiles in enumerate(owned):
            for tile, part in _parts(tiles, everyone[rank * longest :]):
                self._memory_of(tile).copy_(part)


def _parts(tiles: list[Any], flat: torch.Tensor) -> Iterator[tuple[Any, torch.Tensor]]:
    start = 0
    for tile in tiles:
        yield tile, flat[start : start + tile.numel]
        start += tile.numel


def _groups_of_shards(
    params: Iterable[Any], of_parameter: dict[nn.Parameter, list[nn.Parameter]]
) -> list[dict[str, Any]]:
    groups = list(params)
    if not groups or not isinstance(groups[0], dict):
        groups = [{"params": groups}]
    result = []
    for group in groups:
        members = group["params"]
        members = [members] if isinstance(members, nn.Parameter) else list(members)
        # As of `named_parameters`.
        members = [member[1] if isinstance(member, tuple) else member for member in members]
        for parameter in members:
            if parameter.requires_grad and parameter not in of_parameter:
                raise ValueError(
                    "agoq_comm: the optimizer is to have a parameter that the gradients were not "
                    "made for."
                )
        shards = [shard for p in members for shard in of_parameter.get(p, [])]
        result.append({**group, "params": shards})
    return result
