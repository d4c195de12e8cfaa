"""A callback for Hugging Face's Trainer.

Example::

Trainer(model, arguments, train_dataset=data, callbacks=[ActivationCallback()])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from agoq_comm.activation.accounting import Accounting
from agoq_comm.activation.integrations.optional import require
from agoq_comm.activation.integrations.per_forward import CompressedForward
from agoq_comm.activation.policy import Policy

if TYPE_CHECKING:

    class _TrainerCallback: ...
else:
    _TrainerCallback = require("transformers", "ActivationCallback").TrainerCallback


class ActivationCallback(_TrainerCallback):
    """Stores activations as a policy says while the Trainer trains.

    Evaluation needs no gradients and is left alone.

    Parameters
    ----------
    policy : Policy, optional
        `Policy.agoq()` by default.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy
        self._forward: CompressedForward | None = None
        self._accounting: Accounting | None = None

    @property
    def accounting(self) -> Accounting:
        """What is held, and what was saved, of the training that runs or ran last."""
        if self._accounting is None:
            raise RuntimeError("no training has begun with this callback")
        return self._accounting

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: nn.Module, **others: Any
    ) -> None:
        """Begin; also after a training that ended by an exception."""
        self._detach()
        self._forward = CompressedForward(model, self.policy)
        self._accounting = self._forward.accounting

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Leave the model as it was."""
        self._detach()

    def _detach(self) -> None:
        if self._forward is not None:
            self._forward.detach()
            self._forward = None
