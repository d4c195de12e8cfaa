"""Saved tensors summed up by module and tensor class."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agoq_comm.activation.accounting import Record

# Why the hooks keep what a wrapped layer saves.
_CODES = "uint8 is not quantized"
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


def rows_of_layers(as_it_is: Iterable[Row], wrapped: Iterable[Row]) -> tuple[Row, ...]:
    """Say of a model's rows what is stored after `wrap_`, whose layers save only their codes."""
    stored = {(row.module, row.tensor_class): row for row in wrapped}
    rows = []
    for row in as_it_is:
        now = stored.pop((row.module, row.tensor_class), None)
        kept = dict(now.kept) if now else {}
        codes = kept.pop(_CODES, 0)
        formats = dict(now.formats) if now else {}
        if codes:
            formats["codes of the layer"] = codes
        elif now is None:
            formats["computed again"] = row.tensors
        rows.append(
            replace(
                row,
                stored_bytes=now.stored_bytes if now else 0,
                scale_bytes=now.scale_bytes if now else 0,
                kept_bytes=now.kept_bytes if now and not codes else 0,
                formats=formats,
                kept=kept,
                relative_error=now.relative_error if now else None,
            )
        )
    return (*rows, *stored.values())


def grouped(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Take the layers of a model together: modules whose names differ in numbers only."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[_LAYER.sub("*", row.module), row.tensor_class].append(row)
    return tuple(_joined(module, alike) for (module, _), alike in groups.items())


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
