"""Replacing a model's layers by ones that store their quantized input and compute the rest again.

What is replaced is the class of a module, not the module: parameters, buffers, hooks, the names in
the state dict and all references to modules stay what they are.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from agoq_comm.activation.fused.layers import FusedLayer, fused_class
from agoq_comm.activation.policy import Policy
from agoq_comm.activation.recognise import recognise


def wrap_(model: nn.Module, policy: Policy | None = None) -> dict[str, str]:
    """Let a model's norms, MLPs and linear layers store their activations as a policy says.

    The output stays the same to the bit; gradients are those of the quantized activations. Call it
    before the model is compiled, or handed to DDP or FSDP.

    Example::

        wrap_(model, Policy.agoq())
        model(batch).loss.backward()

    Parameters
    ----------
    model : nn.Module
        Changed in place.
    policy : Policy, optional
        `Policy.agoq()` by default. Norms, activation functions and linear layers are its sites,
        each with the input that it saves.

    Returns
    -------
    dict
        What was replaced: name of the module, and what it was recognised as.

    Raises
    ------
    NotRecognised
        Modules were not recognised that the policy does not keep; nothing was changed.
    ValueError
        The model was wrapped before.
    """
    replacements = recognise(model, policy or Policy.agoq())
    for replacement in replacements:
        module = replacement.module
        vars(module)["_agoq"] = replacement.settings
        module.__class__ = fused_class(replacement.mixin, type(module))
    return {replacement.name: replacement.description for replacement in replacements}


def unwrap_(model: nn.Module) -> None:
    """Undo `wrap_`. What was saved by a forward pass before still serves its backward pass.

    Raises
    ------
    ValueError
        The class of a module was changed again since; nothing was changed.
    """
    fused = [(n, m) for n, m in model.named_modules() if isinstance(m, FusedLayer)]
    for name, module in fused:
        if "agoq_original" not in vars(type(module)):
            raise ValueError(
                f"the class of module {name!r} was changed to {type(module).__name__} after wrap_; "
                "undo that first"
            )
    for _, module in fused:
        kind: Any = type(module)
        module.__class__ = kind.agoq_original
        del vars(module)["_agoq"]
