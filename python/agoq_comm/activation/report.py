"""What a model saves for its backward pass, what a policy makes of it, and what that weighs.

`report` runs a training step as it is and under a policy, and says module by module what was
stored how; the allocator says what was really held.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from agoq_comm.activation.accounting import Record
from agoq_comm.activation.compress import Compression, compress
from agoq_comm.activation.policy import Policy
from agoq_comm.activation.report_errors import relative_errors
from agoq_comm.activation.report_measure import Usage, measure
from agoq_comm.activation.report_rows import Row, grouped, rows_of, rows_of_layers
from agoq_comm.activation.wrap import unwrap_, wrap_


@dataclass(frozen=True)
class Report:
    """The result of `report`; immutable.

    Parameters
    ----------
    rows : tuple of Row
        In the order in which modules ran.
    exact, compressed : Usage
        Of the step as it is and under the policy, by the allocator: held from the forward to the
        backward pass, and the peak of both passes.
    policy : dict
        As `Policy.to_dict` gives it.
    device : str
        Whose allocator that was.
    records : tuple of Record
        All saved tensors of one forward pass.
    """

    rows: tuple[Row, ...]
    exact: Usage
    compressed: Usage
    policy: dict[str, Any]
    device: str
    records: tuple[Record, ...]

    @property
    def saved_bytes(self) -> int:
        """Bytes of all saved tensors, each counted as often as it is saved."""
        return sum(row.original_bytes for row in self.rows)

    @property
    def unique_bytes(self) -> int:
        """Bytes of what was saved, each content once: what the step holds as it is."""
        return self.saved_bytes - sum(row.deduplicated_bytes for row in self.rows)

    @property
    def stored_bytes(self) -> int:
        """Bytes that the policy makes of them."""
        return sum(row.stored_bytes for row in self.rows)

    @property
    def predicted_peak(self) -> int:
        """Peak under the policy, told from the step as it is and what is stored.

        Beside what is stored, a step needs what it needed for other ends, and the backward pass of
        a module has the module's tensors decoded.
        """
        decoded = max((row.decoded_bytes for row in self.rows), default=0)
        return self.stored_bytes + self.exact.peak - self.exact.held + decoded

    def grouped(self) -> tuple[Row, ...]:
        """Return the rows with the layers of a model taken together."""
        return grouped(self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "device": self.device,
            "policy": self.policy,
            "saved_bytes": self.saved_bytes,
            "unique_bytes": self.unique_bytes,
            "stored_bytes": self.stored_bytes,
            "exact": asdict(self.exact),
            "compressed": asdict(self.compressed),
            "predicted_peak": self.predicted_peak,
            "rows": [asdict(row) for row in self.rows],
        }


def report(
    model: nn.Module,
    step: Callable[[], torch.Tensor],
    policy: Policy | None = None,
    *,
    errors: bool = False,
    wrap: bool = False,
) -> Report:
    """Run a training step as it is and under a policy, and compare.

    Gradients are as before when it returns; buffers, such as running means, are as the steps left
    them. Not thread-safe: the measurement counts what all threads allocate.

    Parameters
    ----------
    model : nn.Module
        What is compressed.
    step : callable
        Runs the model and returns the loss, a scalar.
    policy : Policy, optional
        `Policy.agoq()` by default.
    errors : bool
        Measure the relative error of what the hooks quantize: one more forward pass.
    wrap : bool
        Let `wrap_` replace the layers that it knows, and undo that at the end.
    """
    policy = policy or Policy.agoq()
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    gradients = [(p, p.grad) for p in model.parameters()]
    wrapped = False
    try:
        model.zero_grad(set_to_none=True)
        exact = usage_of(step, device)
        found = relative_errors(model, policy, step) if errors else {}
        as_it_is = rows_of(_records(compress(model, Policy.exact()), step))
        if wrap:
            wrap_(model, policy)
            wrapped = True
        context = compress(model, policy)

        def compressed_step() -> torch.Tensor:
            with context:
                return step()

        compressed = usage_of(compressed_step, device)
        records = _records(context, step)
        rows = rows_of(records, found)
        if wrap:
            rows = rows_of_layers(as_it_is, rows)
    finally:
        if wrapped:
            unwrap_(model)
        for parameter, gradient in gradients:
            parameter.grad = gradient
    return Report(rows, exact, compressed, policy.to_dict(), str(device), tuple(records))


def usage_of(step: Callable[[], torch.Tensor], device: torch.device) -> Usage:
    """Measure a step: held when its forward pass is done, and the peak with its backward pass."""
    # The first step makes gradients and what libraries hold on to; a second one only uses them.
    step().backward()  # type: ignore[no-untyped-call]
    held = measure(step, device).held
    return Usage(held, measure(lambda: step().backward(), device).peak)  # type: ignore[no-untyped-call]


def _records(context: Compression, step: Callable[[], torch.Tensor]) -> list[Record]:
    with context:
        loss = step()
    records = context.accounting.records
    loss.backward()  # type: ignore[no-untyped-call]
    return records
