"""A text every machine has: the sources of the Python standard library, as bytes.

The files come in sorted order and are split by a hash of their names, so that the same Python gives
the same corpus everywhere and no held-out file is ever trained on.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

# Tests hold generated tables and deliberate nonsense; installed packages differ from machine to
# machine.
_EXCLUDED_DIRECTORIES = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
)
# One file in so many is held out.
_HELD_OUT_ONE_IN = 20


@dataclass(frozen=True)
class Corpus:
    """Text as uint8 tensors, one token a byte.

    Attributes
    ----------
    train, held_out
        The concatenated files of either side of the split.
    train_files, held_out_files
        Their names relative to the root, in the order of concatenation.
    """

    train: torch.Tensor
    held_out: torch.Tensor
    train_files: tuple[str, ...]
    held_out_files: tuple[str, ...]


def source_files(root: Path) -> list[str]:
    """List the ``.py`` files under `root`, relative and sorted, without tests and packages."""
    names = []
    for path in root.rglob("*.py"):
        relative = path.relative_to(root)
        if path.is_file() and not _EXCLUDED_DIRECTORIES.intersection(relative.parts[:-1]):
            names.append(relative.as_posix())
    return sorted(names)


def is_held_out(name: str) -> bool:
    """Decide by the name alone: a new file never moves another one to the other side."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") % _HELD_OUT_ONE_IN == 0


def load_corpus(root: Path | None = None) -> Corpus:
    """Read the corpus.

    Parameters
    ----------
    root
        Directory of sources; the running interpreter's standard library by default.
    """
    if root is None:
        root = Path(sysconfig.get_path("stdlib"))
    names = source_files(root)
    held_out = tuple(name for name in names if is_held_out(name))
    train = tuple(name for name in names if not is_held_out(name))
    if not train or not held_out:
        raise ValueError(f"{root} has too few Python sources to split: {len(names)} files found")
    return Corpus(_read(root, train), _read(root, held_out), train, held_out)


def _read(root: Path, names: tuple[str, ...]) -> torch.Tensor:
    text = bytearray().join((root / name).read_bytes() for name in names)
    return torch.frombuffer(text, dtype=torch.uint8)


def windows(text: torch.Tensor, length: int) -> torch.Tensor:
    """View `text` as rows of `length` + 1 tokens: inputs and, one to the right, targets.

    Rows start `length` apart, so that every token is the target of exactly one row.
    """
    if text.numel() <= length:
        raise ValueError(f"a text of {text.numel()} bytes has no window of {length + 1}")
    return text.unfold(0, length + 1, length)


def batches(
    rows: torch.Tensor, batch: int, rank: int, ranks: int, seed: int
) -> Iterator[torch.Tensor]:
    """Yield batches of rows for ever, shuffled anew each epoch; no row goes to two ranks.

    Parameters
    ----------
    rows
        What :func:`windows` returns.
    batch
        Rows that this rank gets at a time.
    rank, ranks
        This rank and how many there are.
    seed
        Equal on all ranks; the order of the rows depends on nothing else.
    """
    step = batch * ranks
    if rows.shape[0] < step:
        raise ValueError(f"{rows.shape[0]} rows are fewer than the {step} of one step")
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(rows.shape[0], generator=generator)
        for begin in range(rank * batch, order.numel() - step + rank * batch + 1, step):
            yield rows[order[begin : begin + batch]].long()
