"""The AGOQ_* variables that set defaults of `agoq_comm.Options`, in this one place."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


# Variable, the field of Options that it sets, and how its text is read.
_VARIABLES: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("AGOQ_FORMAT", "format", str),
    ("AGOQ_BLOCK", "block", int),
    ("AGOQ_SCALE", "scale", str),
    ("AGOQ_ROUNDING", "rounding", str),
    ("AGOQ_SEED", "seed", int),
    ("AGOQ_MIN_NUMEL", "min_numel", int),
    ("AGOQ_QUANTIZE", "quantize", _names),
    ("AGOQ_ALGORITHM", "algorithm", str),
    ("AGOQ_SEGMENT_NUMEL", "segment_numel", int),
    ("AGOQ_CODEC_THREADS", "codec_threads", int),
    ("AGOQ_TRANSPORT", "transport", str),
    ("AGOQ_DEVICE_TRANSPORT", "device_transport", str),
)


def apply(options: Any) -> None:
    """Set the fields of `options` whose variable is set.

    Raises
    ------
    ValueError
        Naming the variable whose value cannot be used, and why.
    """
    for variable, field, parse in _VARIABLES:
        text = os.environ.get(variable)
        if text is None:
            continue
        try:
            setattr(options, field, parse(text))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{variable}={text!r} cannot be used: {error}") from None
