"""Compression that begins and ends with each call of a model, however the call ends.

A training loop of someone else's may leave by an exception and tell no one; hooks on saved tensors
that were entered around it would then stay for whatever the thread does next.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import nn

from agoq_comm.activation.accounting import Accounting
from agoq_comm.activation.compress import Compression
from agoq_comm.activation.policy import Policy


class _WithinCall(Compression):
    """Entered by a hook of the model's, when its call has begun."""

    def __enter__(self) -> _WithinCall:
        super().__enter__()
        self._running.model_is_running()
        return self


class CompressedForward:
    """Compresses what a model saves in each call for which gradients are needed.

    What is computed of the model's result, such as a loss outside of it, is stored by autograd
    itself. Calls of one model by several threads at once are not supported, nor are models that
    call themselves.

    Parameters
    ----------
    model : nn.Module
        The model itself, not what a framework wraps around it.
    policy : Policy, optional
        `Policy.agoq()` by default.
    """

    def __init__(self, model: nn.Module, policy: Policy | None = None) -> None:
        self._context = _WithinCall(model, policy or Policy.agoq())
        self._entered = False
        self._handles = [
            model.register_forward_pre_hook(self._begin, prepend=True),
            # Also runs when the call raises.
            model.register_forward_hook(self._end, always_call=True),
        ]

    @property
    def accounting(self) -> Accounting:
        """What is held, and what was saved."""
        return self._context.accounting

    def detach(self) -> None:
        """Leave the model as it was; saved tensors stay readable."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> CompressedForward:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.detach()

    def _begin(self, _model: nn.Module, _args: Any) -> None:
        if torch.is_grad_enabled():
            self._context.__enter__()
            self._entered = True

    def _end(self, _model: nn.Module, _args: Any, _output: Any) -> None:
        if self._entered:
            self._entered = False
            self._context.__exit__(None, None, None)
