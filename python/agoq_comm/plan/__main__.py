"""The model from the shell.

Usage::

    python -m agoq_comm.plan --ranks 64 --per-node 8 --bandwidth 100Gbit --size 64M
    python -m agoq_comm.plan fit bench/results/linklab.json
    python -m agoq_comm.plan validate bench/results/linklab.json
    python -m agoq_comm.plan scaling --out docs/figures/scaling.png
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agoq_comm.plan import calibration, scaling
from agoq_comm.plan.algorithms import ALGORITHMS, Operation
from agoq_comm.plan.cluster import Cluster, Compute, Link
from agoq_comm.plan.model import Prediction, choose, predict
from agoq_comm.plan.samples import Sample, read_samples

_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


def parse_bandwidth(text: str) -> float:
    """Read bytes a second: ``100Gbit`` (bits a second), or ``12.5GB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(bit|b)(?:/s)?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no bandwidth; write 100Gbit or 12.5GB")
    bits = 8 if match[3].lower() == "bit" else 1
    return float(match[1]) * _PREFIXES[match[2].lower()] / bits


def parse_size(text: str) -> int:
    """Read bytes: ``64M``, powers of 1024."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes, or 64K, 64M, 1G")
    return int(match[1]) * _BINARY[match[2].upper()]


def parse_latency(text: str) -> float:
    """Read seconds: ``20us``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ns|us|ms|s)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no latency; write 20us or 0.1ms")
    return float(match[1]) * _SECONDS[match[2]]


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--per-node", type=int, default=8, help="ranks of each node")
    parser.add_argument(
        "--bandwidth", type=parse_bandwidth, default="100Gbit", help="of a node's port, each way"
    )
    parser.add_argument("--latency", type=parse_latency, default="20us", help="between nodes")
    parser.add_argument(
        "--within",
        type=parse_bandwidth,
        help="bandwidth of a link beside the rank's core in its node; default: shared memory",
    )
    parser.add_argument("--size", type=parse_size, default="64M", help="bytes of the whole buffer")
    parser.add_argument("--dtype", choices=tuple(_ITEMSIZES), default="float32")
    parser.add_argument(
        "--compute", type=float, default=1.0, help="times as fast as the Xeon core of the defaults"
    )
    parser.add_argument(
        "--constants", type=Path, help="JSON of `fit`, instead of latency, within and compute"
    )


def _cluster(arguments: argparse.Namespace) -> Cluster:
    if arguments.constants is not None:
        constants = _read_constants(arguments.constants)
        return constants.cluster(arguments.ranks, arguments.per_node, arguments.bandwidth)
    base, by = Compute(), arguments.compute
    if not by > 0:
        raise ValueError(f"plan: --compute is {by}; it must be more than 0")
    compute = Compute(
        base.encode * by, base.sum * by, base.decode * by, base.transport * by, base.message / by
    )
    between = Link(arguments.bandwidth, arguments.latency)
    if arguments.within is None:
        return Cluster(arguments.ranks, arguments.per_node, between, compute=compute)
    within = Link(arguments.within, 2e-6)
    return Cluster(arguments.ranks, arguments.per_node, between, within, compute)


def _read_constants(path: Path) -> calibration.Constants:
    known = json.loads(path.read_text())
    return calibration.Constants(
        known["goodput"],
        known["latency"],
        Compute(**known["compute"]),
        Link(**known["within"]),
    )


def _row(prediction: Prediction, base: Prediction, chosen: bool) -> str:
    mark = "  <- chosen" if chosen else ""
    return (
        f"{prediction.algorithm:<16}{prediction.segment_numel:>9}"
        f"{prediction.seconds * 1e3:>12.3f}{base.seconds / prediction.seconds:>8.2f}"
        f"{prediction.node_bytes / 2**20:>14.1f}  {prediction.bound}{mark}"
    )


def _predict(arguments: argparse.Namespace) -> int:
    cluster = _cluster(arguments)
    operation = Operation(arguments.operation)
    itemsize = _ITEMSIZES[arguments.dtype]
    count = arguments.size // itemsize
    best = choose(cluster, count, operation=operation, itemsize=itemsize)
    names = [n for n in ALGORITHMS if n != "one_shot" or operation is Operation.ALL_REDUCE]
    rows = [
        best
        if name == best.algorithm
        else predict(cluster, name, count, operation=operation, itemsize=itemsize)
        for name in names
    ]
    if arguments.json:
        print(json.dumps({"chosen": best.as_dict(), "all": [row.as_dict() for row in rows]}))
        return 0
    exact = choose(cluster, count, operation=operation, itemsize=itemsize, quantized=False)
    print("algorithm         segment        ms x exact   MiB of a node  bound by")
    for row in rows:
        print(_row(row, exact, row is best))
    return 0


def _samples(paths: Sequence[Path]) -> list[Sample]:
    return [sample for path in paths for sample in read_samples(path)]


def _fit(arguments: argparse.Namespace) -> int:
    constants = calibration.fit(_samples(arguments.results))
    print(json.dumps(asdict(constants), indent=1))
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    found = calibration.leave_one_rate_out(_samples(arguments.results))
    print("| measured | ms | predicted | error |\n|---|---|---|---|")
    for sample, error in found:
        measured = sample.seconds * 1e3
        print(f"| {sample.name} | {measured:.1f} | {measured * (1 + error):.1f} | {error:+.0%} |")
    sizes = [abs(error) for _, error in found]
    print(
        f"\n{len(sizes)} rows, each predicted by constants fitted to the other rates: "
        f"median error {statistics.median(sizes):.1%}, largest {max(sizes):.1%}"
    )
    return 0


def _scaling(arguments: argparse.Namespace) -> int:
    # Rate and ranks vary; what is asked for is the rest.
    arguments.ranks = arguments.per_node
    itemsize = _ITEMSIZES[arguments.dtype]
    found = scaling.points(_cluster(arguments), arguments.size // itemsize, itemsize)
    print(scaling.table(found), end="")
    if arguments.out is not None:
        title = (
            f"All-reduce of {arguments.size / 2**20:g} MiB {arguments.dtype}, "
            f"{arguments.per_node} ranks a node (predicted)"
        )
        scaling.draw(found, title, arguments.out)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agoq_comm.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="what")
    one = commands.add_parser("predict", help="one cluster; the default")
    _add_cluster(one)
    one.add_argument("--operation", choices=tuple(o.value for o in Operation), default="all_reduce")
    one.add_argument("--json", action="store_true")
    for name, help_text in (("fit", "constants as JSON"), ("validate", "errors, by rate left out")):
        measured = commands.add_parser(name, help=help_text)
        measured.add_argument(
            "results", type=Path, nargs="+", help="JSON of linklab, or of an OSU-style program"
        )
    many = commands.add_parser("scaling", help="8 to 4096 ranks, 10 to 400 Gbit/s")
    _add_cluster(many)
    many.add_argument("--out", type=Path, help="picture")
    return parser


_COMMANDS = {"predict": _predict, "fit": _fit, "validate": _validate, "scaling": _scaling}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or (words[0] not in _COMMANDS and words[0] not in ("-h", "--help")):
        words = ["predict", *words]
    known = _parser().parse_args(words)
    try:
        return _COMMANDS[known.what](known)
    except (OSError, ValueError, KeyError) as error:
        print(f"agoq_comm.plan: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
