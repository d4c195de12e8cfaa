"""What `make demo` runs: the all-reduce table, then one model trained over both backends.

Usage::

    python examples/demo.py [--output demo-output] [--ranks 2]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from rich.console import Console

from compare_runs import Run, check_comparable, comparison_table, draw_losses
from launch import torchrun

console = Console()


def show_all_reduce(base: str, device: str, ranks: int, output: Path) -> None:
    """Measure `base` beside agoq, call by call."""
    console.rule(f"all-reduce, fp32: {base} beside agoq")
    arguments = ["-m", "64K:64M", "-c", "-d", device, "--vs", f"{base},agoq"]
    arguments += ["--json", str(output / "allreduce.json"), "--plot", str(output / "allreduce.png")]
    torchrun(ranks, "bench/osu_allreduce.py", *arguments)


def train_both(base: str, device: str, ranks: int, steps: int, output: Path) -> None:
    """Train the same model from the same seed twice, and compare."""
    runs: list[Run] = []
    for backend in (base, "agoq"):
        console.rule(f"training over {backend}")
        path = output / f"train-{backend}.json"
        arguments = ["--backend", backend, "--device", device, "--steps", str(steps)]
        torchrun(ranks, "examples/train_llama.py", *arguments, "--json", str(path))
        runs.append(json.loads(path.read_text()))
    check_comparable(runs[0], runs[1])
    draw_losses(runs[0], runs[1], output / "training.png")
    console.print()
    console.print(comparison_table(runs[0], runs[1]))


def main() -> int:
    """Run both parts and say where the results lie."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()

    on_gpus = torch.cuda.device_count() >= arguments.ranks
    base, device = ("nccl", "cuda") if on_gpus else ("gloo", "cpu")
    begin = time.monotonic()
    try:
        show_all_reduce(base, device, arguments.ranks, arguments.output)
        train_both(base, device, arguments.ranks, arguments.steps, arguments.output)
    except subprocess.CalledProcessError as error:
        console.print(f"[red]stopped:[/] {' '.join(error.cmd[7:])} failed; its message is above")
        return 1
    console.print(f"\n{time.monotonic() - begin:.0f} s. Figures and numbers: {arguments.output}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
