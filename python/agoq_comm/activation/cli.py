"""What a model would save, from the shell.

Usage::

    python -m agoq_comm.activation report --model tiny-llama --batch 4 --seq 512
    python -m agoq_comm.activation report --model ./my-model --layers 2 --dtype bfloat16
    python -m agoq_comm.activation report --model my_package.models:build --png saved.png

The model has random weights: what is stored depends on shapes alone. docs/activation_report.md
explains the columns.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from agoq_comm.activation import report_models
from agoq_comm.activation.formats import BITS
from agoq_comm.activation.integrations.optional import require
from agoq_comm.activation.policy import Policy
from agoq_comm.activation.report import report
from agoq_comm.activation.report_views import draw, memory_table, modules_table

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Of a file or a pipe, which no terminal has to fit.
_WIDTH = 140
_POLICIES = ("agoq", "uniform")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agoq_comm.activation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("report", help="what a policy would save on a model")
    one.add_argument(
        "--model",
        default="tiny-llama",
        help=f"{', '.join(report_models.BUILT_IN)}; a folder with a config.json; a name on the "
        "Hugging Face hub; or module:function, which gets batch and seq and returns the model and "
        "a function that returns the loss",
    )
    one.add_argument("--batch", type=_positive, default=2, help="sequences; default: %(default)s")
    one.add_argument("--seq", type=_positive, default=256, help="tokens; default: %(default)s")
    one.add_argument("--layers", type=_positive, help="instead of the configuration's")
    one.add_argument("--dtype", choices=tuple(_DTYPES), default="float32")
    one.add_argument("--device", default="cpu")
    one.add_argument("--policy", choices=_POLICIES, default="agoq")
    one.add_argument(
        "--format", default="fp4/128", help=f"{', '.join(BITS)}, with /block; default: %(default)s"
    )
    one.add_argument(
        "--norm",
        metavar="FORMAT",
        help="of norms' inputs, with --policy agoq; default: e2m3 where --format has fewer than 6 "
        "bits, else as --format",
    )
    one.add_argument(
        "--wrap", action="store_true", help="with layers that compute again what they can"
    )
    one.add_argument("--errors", action="store_true", help="measure relative errors too")
    one.add_argument("--every-layer", action="store_true", help="a row for each layer")
    one.add_argument("--json", type=Path, help="where to write all of it")
    one.add_argument("--png", type=Path, help="where to draw it")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def _policy(name: str, fmt: str, norm: str | None) -> Policy:
    if name == "agoq":
        return Policy.agoq(fmt, norm)
    if norm is not None:
        raise ValueError(f"--norm {norm} is of --policy agoq; with uniform norms are as --format")
    return Policy.uniform(fmt)


def _report(arguments: argparse.Namespace) -> int:
    policy = _policy(arguments.policy, arguments.format, arguments.norm)
    model, step = report_models.load(
        arguments.model,
        batch=arguments.batch,
        seq=arguments.seq,
        layers=arguments.layers,
        dtype=_DTYPES[arguments.dtype],
        device=arguments.device,
    )
    found = report(model, step, policy, errors=arguments.errors, wrap=arguments.wrap)
    console = require("rich.console", "the report's table").Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(modules_table(found, every_layer=arguments.every_layer))
    console.print(memory_table(found))
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found.as_dict(), indent=1) + "\n")
    if arguments.png is not None:
        draw(found, arguments.png)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says."""
    known = _parser().parse_args(arguments)
    try:
        return _report(known)
    except (ImportError, OSError, ValueError) as error:
        print(f"agoq_comm.activation: {error}", file=sys.stderr)
        return 1
