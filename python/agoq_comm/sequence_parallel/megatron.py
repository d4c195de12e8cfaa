"""Swaps our functions into an installed Megatron-LM core, and back out.

Megatron's modules import the functions of ``megatron.core.tensor_parallel.mappings`` by name, so
each name is replaced wherever it is held. Its linear layers call the collectives of
torch.distributed themselves, and so are served by the backend as they are.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

import torch
import torch.distributed as dist

from agoq_comm._groups import _backend_of
from agoq_comm.sequence_parallel import regions
from agoq_comm.sequence_parallel.policy import QuantizationPolicy

_MAPPINGS = "megatron.core.tensor_parallel.mappings"
_Function = Callable[..., torch.Tensor]

_lock = threading.Lock()
_active: MegatronPatch | None = None


class MegatronPatch:
    """What `patch_megatron` did. `undo` takes it back; so does the end of a ``with`` block.

    Thread-safe with respect to other patches; not with respect to imports of Megatron's modules.
    """

    def __init__(self, replacements: dict[_Function, _Function]) -> None:
        self._replacements = replacements

    def undo(self) -> None:
        """Put Megatron's own functions back, also into modules imported since. May be repeated."""
        global _active
        with _lock:
            if _active is self:
                _replace({ours: theirs for theirs, ours in self._replacements.items()})
                _active = None

    def __enter__(self) -> MegatronPatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.undo()


def patch_megatron(policy: QuantizationPolicy | None = None) -> MegatronPatch:
    """Replace Megatron-LM's functions between parallel regions with those of this package.

    Calls on groups of another backend than ``agoq`` still go to Megatron's own functions.

    Parameters
    ----------
    policy : QuantizationPolicy, optional
        Of all calls; the default policy at the time of each call by default.

    Returns
    -------
    MegatronPatch
        Undoes it.

    Raises
    ------
    ImportError
        megatron-core is not installed.
    RuntimeError
        It is patched already.
    """
    global _active
    mappings = importlib.import_module(_MAPPINGS)
    with _lock:
        if _active is not None:
            raise RuntimeError("agoq_comm: Megatron is patched already; undo that patch first.")
        patch = MegatronPatch(
            {
                getattr(mappings, name): _replacement(mappings, name, policy)
                for name in regions.__all__
                if hasattr(mappings, name)
            }
        )
        _replace(patch._replacements)
        _active = patch
    return patch


def _replacement(mappings: ModuleType, name: str, policy: QuantizationPolicy | None) -> _Function:
    theirs: _Function = getattr(mappings, name)
    ours: Any = functools.partial(getattr(regions, name), policy=policy)
    # Where `group` stands among the arguments differs from function to function.
    position = 2 if name == "gather_from_sequence_parallel_region" else 1
    group_of: Callable[[Any], Any] = mappings.get_tensor_model_parallel_group_if_none

    @functools.wraps(theirs)
    def function(*args: Any, **kwargs: Any) -> torch.Tensor:
        named = kwargs.get("group", args[position] if len(args) > position else None)
        group = group_of(named)
        if group is None or not _is_ours(group):
            return theirs(*args, **kwargs)
        if len(args) > position:
            return ours(*args[:position], group, *args[position + 1 :], **kwargs)
        return ours(*args, **{**kwargs, "group": group})

    return function


def _is_ours(group: dist.ProcessGroup) -> bool:
    try:
        _backend_of(group)
    except ValueError:
        return False
    return True


def _replace(by: dict[_Function, _Function]) -> None:
    """Replace functions in every loaded module of Megatron that holds them."""
    for name, module in list(sys.modules.items()):
        if module is None or not (name == "megatron" or name.startswith("megatron.")):
            continue
        for attribute, value in list(vars(module).items()):
            if callable(value) and _is_key(value, by):
                setattr(module, attribute, by[value])


def _is_key(value: Any, by: dict[_Function, _Function]) -> bool:
    try:
        return value in by
    except TypeError:  # Not everything that can be called can be hashed.
        return False
