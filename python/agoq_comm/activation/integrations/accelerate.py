"""For training loops with Hugging Face's accelerate.

Example::

model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
compress_prepared(accelerator, model)
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

from __future__ import annotations

from typing import Any

from torch import nn

from agoq_comm.activation.integrations.per_forward import CompressedForward
from agoq_comm.activation.policy import Policy


def compress_prepared(
    accelerator: Any, model: nn.Module, policy: Policy | None = None
) -> CompressedForward:
    """Store the activations of a prepared model as a policy says, in each call from now on.

    Parameters
    ----------
    accelerator : accelerate.Accelerator
        What prepared the model.
    model : nn.Module
        What `accelerator.prepare` returned for it.
    policy : Policy, optional
        `Policy.agoq()` by default.

    Returns
    -------
    CompressedForward
        Its `accounting` tells what is held; its `detach` ends it.
    """
    return CompressedForward(accelerator.unwrap_model(model), policy)
