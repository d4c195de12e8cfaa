"""Which modules of a model are running, in each thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from agoq_comm.activation.tensor_classes import class_of_module


class Running(NamedTuple):
    """A module that is running.

    Parameters
    ----------
    name : str
        Qualified.
    module : nn.Module or None
        None outside of the model.
    types : tuple of type
        Its class, after those of the modules that are running around it.
    """

    name: str
    module: nn.Module | None
    types: tuple[type, ...]


_OUTSIDE = Running("", None, ())


class _Stack(threading.local):
    def __init__(self) -> None:
        self.frames: list[Running] = []


class RunningModules:
    """Follows the calls of a model's modules by hooks on each, while it is attached.

    A compiled module runs as one: no hook runs inside of it, and its class is that of the attention
    in it, if there is one, so that a policy which keeps attention keeps what it cannot tell apart.
    Threads each have their own stack; attaching and detaching is for one thread at a time.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._stack = _Stack()
        self._undo: list[Callable[[], None]] = []

    def innermost(self) -> Running:
        """Return the module that this thread is in."""
        frames = self._stack.frames
        return frames[-1] if frames else _OUTSIDE

    def attach(self) -> None:
        """Put hooks on all modules."""
        self._attach("", self._model, set())

    def detach(self) -> None:
        """Take them away; calls that are on the way still end well."""
        for undo in self._undo:
            undo()
        self._undo.clear()
        self._stack.frames.clear()

    def _attach(self, name: str, module: nn.Module, seen: set[nn.Module]) -> None:
        if module in seen or isinstance(module, torch.jit.ScriptModule):
            return
        seen.add(module)
        compiled = _compiled(module)
        kind = type(module) if compiled is None else _class_of_compiled(compiled)

        def enter(*_: Any) -> None:
            self._stack.frames.append(
                Running(name, module, (*self.innermost().types, kind)),
            )

        def leave(*_: Any) -> None:
            # Whatever an exception left above goes with it. The last of this module is the one that
            # ends: it may run within itself.
            frames = self._stack.frames
            for index in range(len(frames) - 1, -1, -1):
                if frames[index].module is module:
                    del frames[index:]
                    return

        if compiled is module:
            self._surround_compiled(module, enter, leave)
        else:
            self._undo.append(module.register_forward_pre_hook(enter, prepend=True).remove)
            self._undo.append(module.register_forward_hook(leave, always_call=True).remove)
        # A fused MLP would run as the plain one if its activation function had a hook.
        if compiled is None and not getattr(module, "runs_as_one", False):
            for child_name, child in module.named_children():
                self._attach(f"{name}.{child_name}" if name else child_name, child, seen)

    def _surround_compiled(
        self, module: nn.Module, enter: Callable[..., None], leave: Callable[..., None]
    ) -> None:
        """Follow a module that was compiled in place, whose hooks are compiled with it."""
        call: Any = module._compiled_call_impl

        def surrounded(*args: Any, **kwargs: Any) -> Any:
            enter()
            try:
                return call(*args, **kwargs)
            finally:
                leave()

        def undo() -> None:
            module._compiled_call_impl = call

        module._compiled_call_impl = surrounded
        self._undo.append(undo)


def _compiled(module: nn.Module) -> nn.Module | None:
    """Return what torch.compile was given: the inner module, or itself where that was in place."""
    if module._compiled_call_impl is not None:
        return module
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def _class_of_compiled(module: nn.Module) -> type:
    for part in module.modules():
        if class_of_module(type(part)) == "attention":
            return type(part)
    return type(module)
