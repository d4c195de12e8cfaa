"""Compression that begins and ends with each call of a model, however the call ends.

A training loop of someone else's may leave by an exception and tell no one; hooks on saved tensors
that were entered around it would then stay for whatever the thread does next.
"""

from __future__ import annotations

import functools
from types import TracebackType
from typing import Any

import torch
from torch import nn

from agoq_comm.activation.accounting import Accounting
from agoq_comm.activation.compress import compress
from agoq_comm.activation.policy import Policy


class CompressedForward:
    """Compresses what a model saves in each call for which gradients are needed.

    What is computed of the model's result, such as a loss outside of it, is stored by autograd
    itself. Calls of one model by several threads at once are not supported, nor are models that
    call themselves. The model's `forward` is replaced until `detach`.

    Parameters
    ----------
    model : nn.Module
        The model itself, not what a framework wraps around it.
    policy : Policy, optional
        `Policy.agoq()` by default.
    """

    def __init__(self, model: nn.Module, policy: Policy | None = None) -> None:
        self._context = compress(model, policy)
        self._model = model
        self._attached = True
        # Of the instance where there is one, as accelerate sets it; else the method of the class.
        self._own = model.__dict__.get("forward")
        forward = model.forward

        # Keeps the signature, by which the Trainer of transformers chooses a batch's columns.
        @functools.wraps(forward)
        def compressed(*args: Any, **kwargs: Any) -> Any:
            if not (self._attached and torch.is_grad_enabled()):
                return forward(*args, **kwargs)
            before = set(model._forward_pre_hooks)
            with self._context:
                # The call of the model has begun, so that what the context hangs on the model
                # itself would run at the next one only.
                for key, hook in list(model._forward_pre_hooks.items()):
                    if key not in before:
                        hook(model, args)
                return forward(*args, **kwargs)

        self._compressed = compressed
        model.forward = compressed

    @property
    def accounting(self) -> Accounting:
        """What is held, and what was saved."""
        return self._context.accounting

    def detach(self) -> None:
        """Leave the model as it was; saved tensors stay readable."""
        self._attached = False
        # Someone who replaced `forward` after this calls what is in there, which does nothing more.
        if self._model.__dict__.get("forward") is self._compressed:
            if self._own is None:
                del self._model.forward
            else:
                self._model.forward = self._own

    def __enter__(self) -> CompressedForward:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.detach()
