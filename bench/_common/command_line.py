"""The flags of the OSU micro-benchmarks, and the few that compare backends."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
    "int32": torch.int32,
    "int64": torch.int64,
}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Settings:
    """One program's run, as asked for on the command line.

    Attributes
    ----------
    sizes
        Message sizes in bytes, ascending.
    iterations, warmup
        Timed and untimed calls a size; None leaves `iterations` to :meth:`calls`.
    contenders
        Names of backends; one alone is measured as OSU does, several are compared call by call.
    """

    sizes: tuple[int, ...]
    iterations: int | None
    warmup: int
    validate: bool
    full: bool
    device: str
    library: str
    dtype: torch.dtype
    contenders: tuple[str, ...]
    json: Path | None
    plot: Path | None

    def calls(self, size: int) -> int:
        """Return how often to time a message of `size` bytes: large ones less often."""
        if self.iterations is not None:
            return self.iterations
        return max(20, min(200, 2**29 // max(1, size)))


def parse_size(text: str) -> int:
    """Read a number of bytes: ``65536``, ``64K``, ``64KiB``."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes, or 64K, 64M, 1G")
    return int(match[1]) * _UNITS[match[2].upper()]


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read OMB's ``-m``: ``min:max``, or ``max`` alone. Sizes double from min to max."""
    first, colon, last = text.partition(":")
    low, high = (parse_size(first or "1"), parse_size(last)) if colon else (1, parse_size(first))
    if not 0 < low <= high:
        raise argparse.ArgumentTypeError(f"{text!r}: needs 0 < min <= max")
    sizes = []
    while low <= high:
        sizes.append(low)
        low *= 2
    return tuple(sizes)


def parse_contenders(text: str) -> tuple[str, ...]:
    """Read ``gloo,agoq``."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(names) != len(set(names)) or not names:
        raise argparse.ArgumentTypeError(f"{text!r}: name each backend once")
    return names


def parse(description: str, default_sizes: str, arguments: Sequence[str] | None = None) -> Settings:
    """Read the command line of a program that measures one operation."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "-m",
        "--message-size",
        dest="sizes",
        type=parse_sizes,
        default=parse_sizes(default_sizes),
        metavar="MIN:MAX",
        help=f"message sizes in bytes, K, M or G (default {default_sizes})",
    )
    parser.add_argument("-i", "--iterations", type=int, help="timed calls a size")
    parser.add_argument("-x", "--warmup", type=int, default=5, help="untimed calls before them")
    parser.add_argument("-c", "--validation", action="store_true", help="check every result")
    parser.add_argument("-f", "--full", action="store_true", help="also minimum, maximum, calls")
    parser.add_argument("-d", "--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "-b", "--buffer", choices=("numpy", "torch", "cupy"), help="who allocates (default torch)"
    )
    parser.add_argument("-T", "--type", choices=tuple(DTYPES), default="float32")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--backend", default="agoq", help="backend to measure (default agoq)")
    what.add_argument(
        "--vs",
        type=parse_contenders,
        metavar="A,B,...",
        help="compare backends in one run, calls alternating; the first is the base of ratios. "
        "torch's names, agoq, exact (agoq without quantization), mpi (mpi4py)",
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--plot", type=Path, help="draw size against time here")
    known = parser.parse_args(arguments)
    if (known.iterations is not None and known.iterations < 1) or known.warmup < 0:
        parser.error("needs at least one iteration and no negative warm-up")
    library = known.buffer or "torch"
    if library != "torch" and (library == "cupy") != (known.device == "cuda"):
        parser.error(f"-b {library} has no buffers for -d {known.device}")
    return Settings(
        sizes=known.sizes,
        iterations=known.iterations,
        warmup=known.warmup,
        validate=known.validation,
        full=known.full,
        device=known.device,
        library=library,
        dtype=DTYPES[known.type],
        contenders=known.vs or (known.backend,),
        json=known.json,
        plot=known.plot,
    )
