"""Gradients that live in 8 bits from the backward pass to the optimizer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from agoq_comm._arrays import DEVICE_TYPES
from agoq_comm._encoded import kernels
from agoq_comm._groups import _backend_of
from agoq_comm.codec import StochasticRounding
from agoq_comm.gradients.bucket import Bucket
from agoq_comm.gradients.layout import BlockFormat, Tile, plan

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_RESULTS = ("all_reduce", "reduce_scatter")
# The collectives of a group encode with stages 0 to 2; another stage keeps our draws apart.
_STAGE = 3


class QuantizedGradients:
    """Accumulates gradients encoded, and reduces what is stored over a group of ranks.

    A hook takes each gradient as soon as autograd has accumulated it, adds it in fp32 to the
    encoded bucket and frees ``.grad``: no gradient of full precision outlives its layer. `reduce`
    sends the stored bytes without encoding them again and sums them in fp32 in rank order. Hand the
    result to an optimizer by `ChunkedOptimizer` or `ShardedOptimizer`, or read it with `gradient`.

    A backward pass outside of `no_sync` is taken for the last of a step: buckets are sent as they
    fill up. Not thread-safe.

    Parameters
    ----------
    model_or_params : Module or iterable of Parameter
        Those that require a gradient now, on the CPU or on one CUDA device, where the encoded
        gradients stay and are added to. The same on all ranks, in the same order. A shared
        parameter is one parameter.
    group : ProcessGroup, optional
        A group of the backend ``agoq``, whose options name the block format and the rounding; the
        world by default. Ranks that do not use the same parameters send their buckets at different
        times: call nothing else on the group between the last backward pass and `reduce`.
    result : {"all_reduce", "reduce_scatter"}
        Whether all ranks get all sums, encoded once more, or each the sums of the tiles it owns.
    average : bool
        Divide the sum by the number of ranks.
    error_feedback : bool
        Remember what encoding a gradient lost, in 8 bits, and add it to the next one.
    bucket_numel : int
        Elements after which a bucket is closed.
    """

    def __init__(
        self,
        model_or_params: nn.Module | Iterable[nn.Parameter],
        group: dist.ProcessGroup | None = None,
        *,
        result: str = "all_reduce",
        average: bool = True,
        error_feedback: bool = False,
        bucket_numel: int = 2**23,
    ) -> None:
        if result not in _RESULTS:
            raise ValueError(f"agoq_comm: result is {result!r}, but must be one of {_RESULTS}.")
        options = _backend_of(group).options
        chosen = dist.group.WORLD if group is None else group
        assert chosen is not None
        self.group: dist.ProcessGroup = chosen
        self.result = result
        given = _given(model_or_params)
        self.parameters = _parameters_of(given)
        self._frozen = [parameter for parameter in given if not parameter.requires_grad]
        #: Where the parameters are, and their encoded gradients.
        self.device = _device_of(self.parameters)
        self._indices = {parameter: i for i, parameter in enumerate(self.parameters)}
        self._factor = 1.0 / self.group.size() if average else 1.0
        self._options = options
        self._format = BlockFormat.of(options)
        # A build without kernels for the device says so now, not in the first backward pass.
        element, block, scale = dataclasses.astuple(self._format)
        kernels(self.device, element, block, scale, None, 0)
        layouts = plan(self.parameters, self._format, self.group.size(), bucket_numel)
        self.buckets = [
            Bucket(layout, self._format, self.group, self.device, error_feedback)
            for layout in layouts
        ]
        self._bucket_of = {
            index: bucket for bucket in self.buckets for index in bucket.layout.parameters
        }
        # Which have a gradient: of this rank, and after `reduce` of any rank.
        self._present = [False] * len(self.parameters)
        self._calls = [0] * len(self.parameters)
        self._waiting = {id(bucket): set(bucket.layout.parameters) for bucket in self.buckets}
        self._next_bucket = 0
        self._last = True
        self._reduced = False
        self._steps = 0
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]
            for parameter in self.parameters
        ]

    # --- accumulating ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate: backward passes in this block are not the last ones of their step."""
        before, self._last = self._last, False
        try:
            yield
        finally:
            self._last = before

    def _take(self, parameter: torch.Tensor) -> None:
        """Hook: move a gradient into its bucket."""
        gradient = parameter.grad
        if gradient is None:
            raise RuntimeError(
                "agoq_comm: something took a parameter's gradient before its hook did. Call "
                "remove() on another QuantizedGradients of the same parameters."
            )
        index = self._indices[parameter]  # type: ignore[index]
        bucket = self._bucket_of[index]
        if self._reduced or bucket.is_under_way:
            raise RuntimeError(
                "agoq_comm: a gradient arrived after its bucket was sent. Put all backward passes "
                "of a step but the last into `with gradients.no_sync():`, the last one too if it "
                "reaches a parameter twice (a shared layer under reentrant checkpointing), and "
                "call zero_grad() before the next step."
            )
        if gradient.layout != torch.strided:
            raise TypeError(
                f"agoq_comm: a gradient has layout {gradient.layout}; only dense ones are encoded."
            )
        rounding = self._rounding_of(index)
        bucket.add(index, gradient.detach(), not self._present[index], rounding)
        parameter.grad = None
        self._present[index] = True
        if self._last:
            self._waiting[id(bucket)].discard(index)
            self._send_full_buckets()

    def _rounding_of(self, index: int) -> Any:
        if self._options.rounding != "stochastic":
            return None
        call = self._calls[index]
        self._calls[index] = (call + 1) % 2**32
        draws = StochasticRounding(
            self._options.seed, call=call, rank=self.group.rank(), stage=_STAGE
        )
        return lambda tile: dataclasses.replace(draws, first_element=tile.first_element)

    def _send_full_buckets(self) -> None:
        """Send in the order of the buckets, which is the same on all ranks."""
        while self._next_bucket < len(self.buckets):
            bucket = self.buckets[self._next_bucket]
            if self._waiting[id(bucket)]:
                return
            self._send(bucket)

    def _send(self, bucket: Bucket) -> None:
        for index in bucket.layout.parameters:
            if not self._present[index]:
                bucket.clear(index)
        if self.group.size() > 1:
            bucket.start()
        self._next_bucket += 1

    # --- reducing --------------------------------------------------------------------------------

    def reduce(self) -> None:
        """Reduce all gradients. Collective: every rank calls it once a step.

        At most two buckets are in the works at a time beyond those that a backward pass sent.
        """
        if self._reduced:
            raise RuntimeError("agoq_comm: reduced already; call zero_grad() before the next step.")
        if any(parameter.requires_grad for parameter in self._frozen):
            raise RuntimeError(
                "agoq_comm: a parameter that was frozen when these gradients were made requires "
                "one now, which nobody would reduce; make new QuantizedGradients."
            )
        size = self.group.size()
        for position, bucket in enumerate(self.buckets):
            for following in self.buckets[self._next_bucket : position + 2]:
                self._send(following)
            if size == 1:
                continue
            if self.result == "reduce_scatter":
                bucket.keep_pieces()
                continue
            bucket.start_result(self._factor)
            if position > 0:
                self.buckets[position - 1].finish_result()
        if size > 1:
            if self.result == "all_reduce" and self.buckets:
                self.buckets[-1].finish_result()
            present = torch.tensor(self._present, dtype=torch.int32)
            dist.all_reduce(present, dist.ReduceOp.MAX, group=self.group)
            self._present = [bool(flag) for flag in present.tolist()]
        self._reduced = True

    @property
    def is_reduced(self) -> bool:
        """`reduce` has been called for the step at hand."""
        return self._reduced

    def zero_grad(self) -> None:
        """Forget all gradients and begin the next step; memory stays."""
        if any(bucket.is_under_way for bucket in self.buckets):
            raise RuntimeError(
                "agoq_comm: buckets are on their way; call reduce() before zero_grad()."
            )
        self._present = [False] * len(self.parameters)
        self._waiting = {id(bucket): set(bucket.layout.parameters) for bucket in self.buckets}
        self._next_bucket = 0
        self._reduced = False
        self._steps += 1

    @property
    def steps(self) -> int:
        """Number of steps that `zero_grad` has ended."""
        return self._steps

    # --- reading ---------------------------------------------------------------------------------

    def has_gradient(self, parameter: nn.Parameter) -> bool:
        """Tell whether there is one: on this rank, or after `reduce` on any rank."""
        return self._present[self._index_of(parameter)]

    def gradient(
        self, parameter: nn.Parameter, dtype: torch.dtype | None = None
    ) -> torch.Tensor | None:
        """Decode a gradient: this rank's sum so far, or after `reduce` that of all ranks.

        None where no backward pass has reached the parameter. With ``result="reduce_scatter"``
        there is none of all ranks to be had; `shards` has this rank's part.
        """
        index = self._index_of(parameter)
        if self._reduced and self.result == "reduce_scatter" and self.group.size() > 1:
            raise RuntimeError("agoq_comm: each rank has only its shards; iterate over shards().")
        if not self._present[index]:
            return None
        flat = self._bucket_of[index].read(index, dtype or parameter.dtype)
        return flat.view(parameter.shape)

    def shards(
        self, bucket: Bucket, dtype: torch.dtype | None = None
    ) -> Iterator[tuple[Tile, torch.Tensor]]:
        """Yield the tiles of a bucket that this rank owns, and their reduced gradients, flat.

        ``gradients.parameters[tile.parameter].view(-1)[tile.start:tile.stop]`` is what a tile is
        the gradient of.
        """
        if not self._reduced:
            raise RuntimeError("agoq_comm: call reduce() first.")
        if self.group.size() > 1 and self.result == "reduce_scatter":
            tiles = bucket.read_shards(self._factor, dtype)
        else:
            tiles = (
                (
                    tile,
                    bucket.read(tile.parameter, dtype or bucket.layout.dtype)[
                        tile.start : tile.stop
                    ],
                )
                for tile in bucket.layout.of_owner(self.group.rank())
            )
        for tile, gradient in tiles:
            if self._present[tile.parameter]:
                yield tile, gradient

    def _index_of(self, parameter: nn.Parameter) -> int:
        try:
            return self._indices[parameter]
        except KeyError:
            raise ValueError(
                "agoq_comm: this parameter is none of those the gradients were made for."
            ) from None

    @property
    def nbytes(self) -> int:
        """Bytes that the encoded gradients take, with what is kept for error feedback."""
        lost = (bucket.lost for bucket in self.buckets)
        return sum(bucket.data.nbytes for bucket in self.buckets) + sum(
            data.nbytes for data in lost if data is not None
        )

    # --- saving ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's gradients of an unfinished step, and what error feedback remembers."""
        if self._reduced or any(bucket.is_under_way for bucket in self.buckets):
            raise RuntimeError(
                "agoq_comm: a step that is being reduced cannot be saved; end it with reduce() and "
                "zero_grad() first."
            )
        return {
            "layout": self._fingerprint(),
            "data": [bucket.data.clone() for bucket in self.buckets],
            "lost": [None if b.lost is None else b.lost.clone() for b in self.buckets],
            "present": list(self._present),
            "calls": list(self._calls),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned on this rank."""
        if state["layout"] != self._fingerprint():
            raise ValueError(
                f"agoq_comm: the saved gradients are of {state['layout']}, but these are of "
                f"{self._fingerprint()}."
            )
        self.zero_grad()
        for bucket, data, lost in zip(self.buckets, state["data"], state["lost"], strict=True):
            bucket.data.copy_(data)
            if bucket.lost is not None:
                bucket.lost.copy_(lost)
        self._present = list(state["present"])
        self._calls = list(state["calls"])

    def _fingerprint(self) -> dict[str, Any]:
        return {
            "format": dataclasses.astuple(self._format),
            "ranks": self.group.size(),
            "rank": self.group.rank(),
            "parameters": [tuple(parameter.shape) for parameter in self.parameters],
            "buckets": [bucket.layout.parameters for bucket in self.buckets],
            "error_feedback": any(bucket.lost is not None for bucket in self.buckets),
        }

    def remove(self) -> None:
        """Take the hooks off the parameters; gradients stay in ``.grad`` from then on."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def _given(model_or_params: nn.Module | Iterable[nn.Parameter]) -> list[nn.Parameter]:
    if isinstance(model_or_params, nn.Module):
        model_or_params = model_or_params.parameters()
    # Keys of a dict are unique and in order: a shared parameter counts once.
    return list(dict.fromkeys(model_or_params))


def _parameters_of(given: list[nn.Parameter]) -> list[nn.Parameter]:
    parameters = [parameter for parameter in given if parameter.requires_grad]
    for parameter in parameters:
        if isinstance(parameter, DTensor):
            raise TypeError(
                "agoq_comm: a parameter is a DTensor; its own wrapper reduces its gradient. Pass "
                "its mesh a group of the backend agoq instead."
            )
        if parameter.dtype not in _DTYPES or parameter.device.type not in DEVICE_TYPES:
            raise TypeError(
                f"agoq_comm: a parameter is {parameter.dtype} on {parameter.device}; gradients are "
                "kept encoded for float32, bfloat16 and float16 on the CPU and on CUDA devices."
            )
    return parameters


def _device_of(parameters: list[nn.Parameter]) -> torch.device:
    devices = sorted({parameter.device for parameter in parameters}, key=str)
    if len(devices) > 1:
        raise ValueError(
            f"agoq_comm: parameters are on {', '.join(map(str, devices))}; make one "
            "QuantizedGradients for the parameters of each device."
        )
    return devices[0] if devices else torch.device("cpu")
