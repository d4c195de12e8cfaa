"""The extension's ABI belongs to one torch minor version: found out before it is loaded."""

from __future__ import annotations

from pathlib import Path

import torch

_BUILT_FOR = Path(__file__).with_name("_built_for_torch.txt")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def check() -> None:
    """Raise ImportError unless the running torch is of the minor version built for.

    A mismatch would otherwise end in undefined symbols or, worse, in none.
    """
    built_for = _BUILT_FOR.read_text().strip()
    if _minor(torch.__version__) != _minor(built_for):
        raise ImportError(
            f"agoq_comm was built for torch {_minor(built_for)}, but torch {torch.__version__} is "
            "installed. Build it again against this torch: "
            "pip install --no-build-isolation --force-reinstall --no-deps <source of agoq_comm>"
        )
