"""What a model saves for its backward pass, what a policy makes of it, and what that weighs.

`report` runs a training step as it is and under a policy, and says module by module what was
stored how; the allocator says what was really held.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from agoq_comm.activation.accounting import Record
from agoq_comm.activation.compress import compress
from agoq_comm.activation.policy import Policy
from agoq_comm.activation.report_errors import relative_errors
from agoq_comm.activation.report_measure import Usage, measure

_LAYER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True)
class Row:
    """What one module, or several alike, saved of one tensor class.

    Parameters
    ----------
    module : str
        Qualified name, or with ``*`` for the numbers of layers taken together.
    tensor_class : str
        See `agoq_comm.activation.tensor_classes`.
    tensors : int
        Saved tensors.
    original_bytes : int
        Of their numbers, each tensor for itself.
    deduplicated_bytes : int
        Part of `original_bytes` that is stored once for several savers.
    stored_bytes : int
        What is held for them.
    scale_bytes : int
        Part of `stored_bytes` that is scales.
    kept_bytes : int
        Part of `stored_bytes` that is exact.
    formats : dict
        Tensors by format.
    kept : dict
        Exact tensors by the reason.
    relative_error : float or None
        Of the quantized ones: norm of the error by norm of the numbers, where it was asked for.
    """

    module: str
    tensor_class: str
    tensors: int
    original_bytes: int
    deduplicated_bytes: int
    stored_bytes: int
    scale_bytes: int
    kept_bytes: int
    formats: dict[str, int]
    kept: dict[str, int]
    relative_error: float | None

    @property
    def decoded_bytes(self) -> int:
        """Bytes of the numbers that are not kept exactly."""
        return self.original_bytes - self.deduplicated_bytes - self.kept_bytes


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
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[_LAYER.sub("*", row.module), row.tensor_class].append(row)
        return tuple(_joined(module, rows) for (module, _), rows in groups.items())

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
    exact: Usage | None = None,
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
        Measure the relative error of what is quantized: one more forward pass.
    exact : Usage, optional
        What the step used before `wrap_` changed the model; by default it is measured here.
    """
    policy = policy or Policy.agoq()
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    gradients = [(p, p.grad) for p in model.parameters()]
    try:
        model.zero_grad(set_to_none=True)
        exact = exact or usage_of(step, device)
        context = compress(model, policy)

        def compressed_step() -> torch.Tensor:
            with context:
                return step()

        compressed = usage_of(compressed_step, device)
        found = relative_errors(model, policy, step) if errors else {}
        loss = compressed_step()
        records = context.accounting.records
        loss.backward()  # type: ignore[no-untyped-call]
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
    return Report(
        rows_of(records, found), exact, compressed, policy.to_dict(), str(device), tuple(records)
    )


def usage_of(step: Callable[[], torch.Tensor], device: torch.device) -> Usage:
    """Measure a step: held when its forward pass is done, and the peak with its backward pass."""
    # The first step makes gradients and what libraries hold on to; a second one only uses them.
    step().backward()  # type: ignore[no-untyped-call]
    held = measure(step, device).held
    return Usage(held, measure(lambda: step().backward(), device).peak)  # type: ignore[no-untyped-call]


def rows_of(
    records: Iterable[Record], errors: Mapping[tuple[str, str], float] | None = None
) -> tuple[Row, ...]:
    """Sum up records by module and tensor class; what is no activation is left out."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.tensor_class != "parameter":
            groups[record.module, record.tensor_class].append(record)
    return tuple(
        Row(
            module,
            tensor_class,
            len(saved),
            sum(r.original_bytes for r in saved),
            sum(r.original_bytes for r in saved if r.deduplicated),
            sum(r.stored_bytes for r in saved),
            sum(r.scale_bytes for r in saved),
            sum(r.stored_bytes for r in saved if r.format is None),
            dict(Counter(r.format for r in saved if r.format is not None)),
            dict(Counter(r.kept_reason for r in saved if r.format is None)),
            (errors or {}).get((module, tensor_class)),
        )
        for (module, tensor_class), saved in groups.items()
    )


def _joined(module: str, rows: list[Row]) -> Row:
    formats, kept = Counter[str](), Counter[str]()
    for row in rows:
        formats.update(row.formats)
        kept.update(row.kept)
    errors = [row.relative_error for row in rows if row.relative_error is not None]
    return Row(
        module,
        rows[0].tensor_class,
        sum(row.tensors for row in rows),
        sum(row.original_bytes for row in rows),
        sum(row.deduplicated_bytes for row in rows),
        sum(row.stored_bytes for row in rows),
        sum(row.scale_bytes for row in rows),
        sum(row.kept_bytes for row in rows),
        dict(formats),
        dict(kept),
        # Root of the mean square: layers weigh alike.
        (sum(e * e for e in errors) / len(errors)) ** 0.5 if errors else None,
    )
