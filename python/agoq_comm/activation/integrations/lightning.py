"""A callback for Lightning's Trainer.

Example::

Trainer(callbacks=[ActivationCallback()]).fit(module, data)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from agoq_comm.activation.accounting import Accounting
from agoq_comm.activation.compress import Compression, compress
from agoq_comm.activation.integrations.optional import require
from agoq_comm.activation.policy import Policy

if TYPE_CHECKING:

    class _Callback: ...
else:
    _Callback = require("lightning.pytorch", "ActivationCallback").Callback


class ActivationCallback(_Callback):
    """Stores activations as a policy says, in each training step.

    A training step is what Lightning calls so: all that `training_step` computes, whichever modules
    it calls, and the backward pass.

    Parameters
    ----------
    policy : Policy, optional
        `Policy.agoq()` by default.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = policy
        self._context: Compression | None = None
        self._active = False

    @property
    def accounting(self) -> Accounting:
        """What is held, and what was saved, of the fit that runs or ran last."""
        if self._context is None:
            raise RuntimeError("no fit has begun with this callback")
        return self._context.accounting

    def on_fit_start(self, trainer: Any, pl_module: nn.Module) -> None:
        """Learn which model it is."""
        self._context = compress(pl_module, self.policy)

    def on_train_batch_start(
        self, trainer: Any, pl_module: nn.Module, batch: Any, batch_idx: int
    ) -> None:
        """Begin, once the batch before has ended: one that the module skips has no end."""
        self._leave()
        assert self._context is not None
        self._context.__enter__()
        self._active = True

    def on_train_batch_end(
        self, trainer: Any, pl_module: nn.Module, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End."""
        self._leave()

    def on_train_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """End, where the last batch was skipped."""
        self._leave()

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """End, where the epoch itself was skipped with a batch."""
        self._leave()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        """End, where the step itself did not."""
        self._leave()

    def _leave(self) -> None:
        if self._active:
            assert self._context is not None
            self._active = False
            self._context.__exit__(None, None, None)
