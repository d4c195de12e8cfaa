"""How far what a policy stores is from what was saved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from agoq_comm.activation.compress import Compression
from agoq_comm.activation.policy import Policy


class _Comparison(Compression):
    """Decodes each tensor as soon as it is encoded."""

    def __init__(self, model: nn.Module, policy: Policy) -> None:
        super().__init__(model, policy)
        self.sums: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])

    def _pack(self, tensor: torch.Tensor) -> Any:
        saved = super()._pack(tensor)
        record = self.accounting.records[-1] if self.accounting.records else None
        if record is not None and record.format is not None and not isinstance(saved, torch.Tensor):
            exact = tensor.detach().float()
            sums = self.sums[record.module, record.tensor_class]
            sums[0] += (saved.restore().float() - exact).square().sum().item()
            sums[1] += exact.square().sum().item()
        return saved


def relative_errors(
    model: nn.Module, policy: Policy, step: Callable[[], torch.Tensor]
) -> dict[tuple[str, str], float]:
    """Run a forward pass; return norm of the error by norm of the numbers.

    Parameters
    ----------
    model, policy
        As for `compress`.
    step : callable
        Runs the model.

    Returns
    -------
    dict
        By module and tensor class, of what is quantized.
    """
    comparison = _Comparison(model, policy)
    with comparison:
        step()
    return {
        key: (error / total) ** 0.5 if total else 0.0
        for key, (error, total) in comparison.sums.items()
    }
