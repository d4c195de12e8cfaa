"""Telling what a module computes by calling it.

Names promise little: one class multiplies by the weight and another one by one plus the weight, one
chunk is the gate and in the next model it is the other. So a module counts as known if its own
forward gives the same bits as ours. It is called with numbers and weights of our own, without its
hooks and its children, and neither it nor a random generator is the wiser.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from agoq_comm.activation.fused.layers import HOOKS

_SEED = 20260500


@contextlib.contextmanager
def laboratory() -> Iterator[None]:
    """Compute on the CPU, exactly, and leave no trace."""
    with (
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
        torch.autocast("cpu", enabled=False),
        torch.device("cpu"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        reseed()
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(default)


def reseed() -> None:
    """Start the CPU's random numbers anew."""
    torch.default_generator.manual_seed(_SEED)


@contextlib.contextmanager
def replaced(
    module: nn.Module,
    parameters: Mapping[str, torch.Tensor] | None = None,
    children: Mapping[str, nn.Module] | None = None,
) -> Iterator[None]:
    """Let a module in training have other tensors and children, and no hooks, for a while.

    Parameters that are not given, and buffers, are noise: what depends on them shows.
    """
    own_parameters, own_children = dict(module._parameters), dict(module._modules)
    own_buffers = dict(module._buffers)
    modes = [(part, part.training) for part in module.modules()]
    hooks = [(part, name, getattr(part, name)) for part in module.modules() for name in HOOKS]
    try:
        for part, name, _ in hooks:
            setattr(part, name, OrderedDict())
        for part, _ in modes:
            part.training = True
        given = parameters or {}
        for name, own in own_parameters.items():
            if own is not None:
                value = given[name] if name in given else _noise_like(own)
                module._parameters[name] = nn.Parameter(value, requires_grad=False)
        module._buffers.update(
            {name: None if own is None else _noise_like(own) for name, own in own_buffers.items()}
        )
        module._modules.update(children or {})
        yield
    finally:
        module._parameters.update(own_parameters)
        module._buffers.update(own_buffers)
        module._modules.update(own_children)
        for part, training in modes:
            part.training = training
        for part, name, hook in hooks:
            setattr(part, name, hook)


def _noise_like(tensor: torch.Tensor) -> torch.Tensor:
    # Neither zero nor one, which may change nothing.
    return (torch.rand(tensor.shape) + 2.0).to(tensor.dtype)


def own_forward(module: nn.Module, *inputs: torch.Tensor) -> Any:
    """Call the forward of the module's class, past its hooks."""
    forward: Callable[..., Any] = type(module).forward
    return forward(module, *inputs)


class Calls(TorchFunctionMode):
    """Notes which functions of torch are called.

    Of two ways to compute the same bits on a CPU, one may be a kernel of its own that computes
    others on a GPU: the way is that whose calls are the module's.
    """

    def __init__(self) -> None:
        super().__init__()
        self.made: set[Any] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note a call, and pass it on."""
        self.made.add(func)
        return func(*args, **(kwargs or {}))

    def unlike(self, other: Calls) -> int:
        """Count the functions that only one of both has called."""
        return len(self.made ^ other.made)


def same(first: Any, second: torch.Tensor) -> bool:
    """Tell whether both have the same bits, and the same type."""
    return (
        isinstance(first, torch.Tensor)
        and first.dtype == second.dtype
        and first.shape == second.shape
        and torch.equal(first, second)
    )


class StandIn(nn.Module):
    """A function of the sizes of a linear layer that costs next to nothing, unlike any other."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self._direction = torch.randn(in_features) * in_features**-0.5
        self._slope, self._phase = torch.randn(out_features), torch.randn(out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute waves of one number a row, as high as the row's largest one."""
        number = (x * self._direction).sum(-1, keepdim=True)
        height = 1.0 + x.abs().amax(-1, keepdim=True)
        return height * torch.sin(number * self._slope + self._phase)
