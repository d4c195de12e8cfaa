"""What saved tensors would take and what they take, one by one and in sum."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Record:
    """One tensor that autograd saved.

    Parameters
    ----------
    module : str
        Qualified name of the innermost module that was running.
    tensor_class : str
        See `agoq_comm.activation.tensor_classes`.
    shape : tuple of int
        Of the tensor.
    dtype : torch.dtype
        Of the tensor.
    original_bytes : int
        Of its numbers as they are; 0 for a parameter, a buffer or their view, which are there
        anyway.
    stored_bytes : int
        That storing it added: 0 where it shares what is stored already.
    scale_bytes : int
        Part of `stored_bytes` that is scales.
    format : str or None
        None where it is stored exactly.
    deduplicated : bool
        Whether it shares what is stored already.
    kept_reason : str
        Why it is stored exactly; empty for a quantized one.
    """

    module: str
    tensor_class: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    original_bytes: int
    stored_bytes: int
    scale_bytes: int
    format: str | None
    deduplicated: bool
    kept_reason: str


class Accounting:
    """Counters of one `compress`.

    The bytes are those of distinct stored tensors: what several operations save alike counts once,
    as original bytes too. Safe for concurrent use by threads; a reader gets values of one moment.
    """

    def __init__(self) -> None:
        # Re-entrant, since the collector may free a stored tensor while its thread is in here.
        self._lock = threading.RLock()
        self._records: list[Record] = []
        self._saves = 0
        self._original = self._stored = 0
        self._peak_original = self._peak_stored = 0

    @property
    def records(self) -> list[Record]:
        """What was saved since the last moment when nothing was: one forward pass, as a rule."""
        with self._lock:
            return list(self._records)

    @property
    def original_bytes(self) -> int:
        """Bytes that what is held now would take if it were not quantized."""
        with self._lock:
            return self._original

    @property
    def stored_bytes(self) -> int:
        """Bytes that are held now."""
        with self._lock:
            return self._stored

    @property
    def peak_original_bytes(self) -> int:
        """Largest `original_bytes` since the last `reset_peaks`."""
        with self._lock:
            return self._peak_original

    @property
    def peak_stored_bytes(self) -> int:
        """Largest `stored_bytes` since the last `reset_peaks`."""
        with self._lock:
            return self._peak_stored

    def reset_peaks(self) -> None:
        """Let the peaks be what is held now."""
        with self._lock:
            self._peak_original, self._peak_stored = self._original, self._stored

    def saved(self, record: Record) -> None:
        """Note that autograd saved a tensor."""
        with self._lock:
            if self._saves == 0:
                self._records.clear()
            self._saves += 1
            self._records.append(record)

    def forgotten(self) -> None:
        """Note that autograd let go of a saved tensor."""
        with self._lock:
            self._saves -= 1

    def stored(self, original: int, stored: int) -> None:
        """Note that bytes are held from now on."""
        with self._lock:
            self._original += original
            self._stored += stored
            self._peak_original = max(self._peak_original, self._original)
            self._peak_stored = max(self._peak_stored, self._stored)

    def freed(self, original: int, stored: int) -> None:
        """Note that bytes are held no more."""
        with self._lock:
            self._original -= original
            self._stored -= stored
