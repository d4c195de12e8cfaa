"""Storing what autograd saves of any model as a policy says, by hooks on saved tensors."""

from __future__ import annotations

import contextlib
import functools
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from agoq_comm.activation.accounting import Accounting, Record
from agoq_comm.activation.formats import Format
from agoq_comm.activation.layout import Layout
from agoq_comm.activation.origin import looks_like_weight, origin_of
from agoq_comm.activation.policy import Decision, Policy, Site
from agoq_comm.activation.running_modules import Running, RunningModules
from agoq_comm.activation.store import Content, Saved, Store, weak_reference

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
_MOST_DECISIONS = 4096
# An exact tensor that is less than this part of its memory is copied, so that the rest is freed. Of
# two halves both are saved as a rule: a copy of each would free nothing.
_COPIED_PART = 0.5


@functools.lru_cache(maxsize=_MOST_DECISIONS)
def _record(
    module: str,
    tensor_class: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    original: int,
    stored: int,
    scales: int,
    format: Format | None,
    shared: bool,
    reason: str,
) -> Record:
    """Make a record, or find the one of an earlier pass."""
    name = None if format is None else str(format)
    return Record(
        module, tensor_class, shape, dtype, original, stored, scales, name, shared, reason
    )


class _Held(NamedTuple):
    """What is held of a tensor, how the tensor is made of it, and why so."""

    content: Content | None
    layout: Layout | None
    shared: bool
    format: Format | None
    reason: str


_PARAMETER = _Held(None, None, False, None, "a parameter or a buffer, or a view of one")
_COPY_OF_PARAMETER = Decision(None, "a cast or a copy of a parameter")


def compress(model: nn.Module, policy: Policy | None = None) -> Compression:
    """Store what autograd saves while the model runs as a policy says.

    Example::

        with compress(model, Policy.agoq()) as context:
            loss = model(batch)
        loss.backward()

    The backward pass may run inside or outside of the ``with`` block, which may also enclose a
    whole training loop. What other modules save inside of the block is kept exactly by
    `Policy.agoq`, since it may be the loss.

    Parameters
    ----------
    model : nn.Module
        Its modules' names and classes are what the rules ask for.
    policy : Policy, optional
        `Policy.agoq()` by default.

    Returns
    -------
    Compression
        A context manager.
    """
    return Compression(model, policy or Policy.agoq())


class Compression:
    """The context that `compress` returns.

    Enter it in the thread that runs the model: like all of autograd's hooks, it is for that thread,
    and for those that run a backward pass of it. It may be entered again once it was left, and
    hooks that are entered within it replace it while they last, as autograd has it.

    Attributes
    ----------
    accounting : Accounting
        What is held, and what was saved.
    policy : Policy
        Its policy.
    """

    def __init__(self, model: nn.Module, policy: Policy) -> None:
        self.policy = policy
        self.accounting = Accounting()
        self._model = model
        self._running = RunningModules(model)
        self._store = Store(self.accounting)
        self._decisions: dict[Any, tuple[Decision, str]] = {}
        # By address, which the weak reference keeps from being used again.
        self._parameters: dict[int, StorageWeakRef] = {}
        self._hooks: saved_tensors_hooks | None = None

    def __enter__(self) -> Compression:
        if self._hooks is not None:
            raise RuntimeError("this context is active already; make another one with compress()")
        _refuse_within_checkpoint()
        with contextlib.ExitStack() as undo:
            undo.callback(self._leave)
            for tensor in (*self._model.parameters(), *self._model.buffers()):
                if type(tensor) in _PLAIN:
                    reference = weak_reference(tensor.untyped_storage())
                    self._parameters[reference.cdata] = reference
            self._running.attach()
            hooks = saved_tensors_hooks(self._pack, _unpack)
            hooks.__enter__()
            self._hooks = hooks
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._hooks is not None
        hooks, self._hooks = self._hooks, None
        self._leave()
        hooks.__exit__(kind, error, traceback)

    def _leave(self) -> None:
        self._running.detach()
        self._parameters.clear()

    def _pack(self, tensor: torch.Tensor) -> Saved | torch.Tensor:
        if not _is_plain(tensor):
            return tensor.detach()
        running = self._running.innermost()
        if self._is_parameter(tensor, running):
            self._record(tensor, running, "parameter", _PARAMETER)
            return Saved(tensor, None, None, running.name, self.accounting)
        operation, leaf = origin_of(tensor)
        decision, tensor_class = self._decide(tensor, running, operation)
        if isinstance(leaf, nn.Parameter) or looks_like_weight(tensor, running.module):
            decision = _COPY_OF_PARAMETER
        held = self._hold(tensor, decision)
        self._record(tensor, running, tensor_class, held)
        return Saved(tensor, held.content, held.layout, running.name, self.accounting)

    def _hold(self, tensor: torch.Tensor, decision: Decision) -> _Held:
        size = tensor.numel() * tensor.dtype.itemsize
        memory = tensor.untyped_storage().nbytes()
        reason = "" if decision.format else decision.reason
        if self._store.holds_storage(tensor):
            reason, copied = reason or "a view of what is held exactly", False
        elif size == 0 or tensor.is_neg() or tensor.is_conj():
            reason, copied = reason or "its bytes are not its numbers", False
        else:
            copied = not reason or size < _COPIED_PART * memory
        if copied:
            layout = Layout.of(tensor)
            if layout.dense or layout.numel * tensor.dtype.itemsize <= memory:
                format = None if reason else decision.format
                content, shared = self._store.elements(tensor, layout, format)
                return _Held(content, layout, shared, format, reason)
            reason = reason or "its elements overlap"
        content, shared = self._store.storage(tensor)
        return _Held(content, None, shared, None, reason)

    def _record(
        self, tensor: torch.Tensor, running: Running, tensor_class: str, held: _Held
    ) -> None:
        content = held.content
        adds = content if content is not None and not held.shared else None
        self.accounting.saved(
            _record(
                running.name,
                tensor_class,
                tuple(tensor.shape),
                tensor.dtype,
                0 if content is None else tensor.numel() * tensor.dtype.itemsize,
                0 if adds is None else adds.stored,
                0 if adds is None else adds.scale_bytes,
                held.format,
                held.shared,
                held.reason,
            )
        )

    def _is_parameter(self, tensor: torch.Tensor, running: Running) -> bool:
        """Tell whether its memory is that of a parameter or a buffer."""
        storage = _storage_id(tensor)
        if storage in self._parameters or isinstance(tensor, (nn.Parameter, nn.Buffer)):
            return True
        module = running.module
        if module is None:
            return False
        # What the module has now: weights and buffers may have been replaced since.
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        return any(type(t) in _PLAIN and _storage_id(t) == storage for t in own)

    def _decide(
        self, tensor: torch.Tensor, running: Running, operation: str
    ) -> tuple[Decision, str]:
        key = (running.name, running.types, tensor.dtype, tensor.shape, operation)
        known = self._decisions.get(key)
        if known is None:
            site = Site(running.name, running.types, tensor.dtype, tuple(tensor.shape), operation)
            decision = self.policy.decide(site)
            if tensor.device.type not in ("cpu", "cuda"):
                decision = Decision(None, f"there are no kernels for {tensor.device.type}")
            if len(self._decisions) >= _MOST_DECISIONS:
                self._decisions.clear()
            known = self._decisions[key] = (decision, site.tensor_class)
        return known


def _unpack(saved: Saved | torch.Tensor) -> torch.Tensor:
    return saved.restore() if isinstance(saved, Saved) else saved


def _is_plain(tensor: torch.Tensor) -> bool:
    """Tell tensors with memory of their own from those that wrap, trace or lay out otherwise."""
    return (
        type(tensor) in _PLAIN
        and tensor.layout == torch.strided
        and not torch._is_functional_tensor(tensor)
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_nested
    )


def _storage_id(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _refuse_within_checkpoint() -> None:
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if top and getattr(top[0], "__module__", "") == "torch.utils.checkpoint":
        raise RuntimeError(
            "compress() was entered inside a function that torch.utils.checkpoint runs with "
            "use_reentrant=False. Its hooks would replace those of the checkpoint, which then "
            "would recompute nothing and hold everything. Enter compress() around the call of "
            "checkpoint(), or leave the checkpoint out."
        )
