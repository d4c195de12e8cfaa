"""Train with several seeds over both backends; record the losses in the documentation.

    python examples/three_seeds.py            # rewrites docs/data/training_seeds.json and
                                              # the table in docs/training.md

The exit status is 1 when a seed's validation losses differ by more than the stated criterion.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from compare_runs import check_comparable, draw_losses, loss_difference
from launch import ROOT, torchrun

# Largest relative difference of validation losses, either way.
CRITERION = 0.005


def train(backend: str, seed: int, ranks: int, steps: int) -> dict[str, Any]:
    """Make one run and return its result."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "run.json"
        arguments = ["--backend", backend, "--seed", str(seed), "--steps", str(steps)]
        torchrun(ranks, "examples/train_llama.py", *arguments, "--json", str(path))
        return json.loads(path.read_text())


def common_settings(run: dict[str, Any]) -> dict[str, Any]:
    """Return what all runs of a record have in common."""
    config = {k: v for k, v in run["config"].items() if k not in ("backend", "seed")}
    return {key: run[key] for key in ("torch", "device", "ranks", "parameters")} | config


def summarize(run: dict[str, Any]) -> dict[str, Any]:
    """Keep what the documentation states."""
    kept = ("validation_loss", "validation_curve", "total_seconds", "communication")
    return {key: run[key] for key in kept}


def seeds_table(record: dict[str, Any]) -> str:
    """Lay out a record as Markdown."""
    lines = [
        f"| seed | {record['base']} | agoq | difference | sent, {record['base']} / agoq (MiB) | "
        f"communication, {record['base']} / agoq (s) |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["seeds"]:
        base, agoq = row["base"], row["agoq"]
        sent = (r["communication"]["bytes_sent"] / 2**20 for r in (base, agoq))
        seconds = (r["communication"]["seconds"] for r in (base, agoq))
        lines.append(
            f"| {row['seed']} | {base['validation_loss']:.4f} | {agoq['validation_loss']:.4f} | "
            f"{row['difference']:+.2%} | {' / '.join(f'{s:.0f}' for s in sent)} | "
            f"{' / '.join(f'{s:.2f}' for s in seconds)} |"
        )
    return "\n".join(lines)


def replace_table(page: str, table: str, name: str = "seeds") -> str:
    """Put `table` between the page's marks of that name."""
    marks = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, begin, rest = page.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {marks[0]} and {marks[1]}")
    return f"{head}{begin}\n{table}\n{end}{tail}"


def main() -> int:
    """Run all seeds, write the record, the table and the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", default="gloo")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()

    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    for seed in arguments.seeds:
        base = train(arguments.base, seed, arguments.ranks, arguments.steps)
        agoq = train("agoq", seed, arguments.ranks, arguments.steps)
        check_comparable(base, agoq)
        if not rows:
            config = common_settings(base)
            draw_losses(base, agoq, arguments.docs / "figures" / "training.png")
        rows.append(
            {
                "seed": seed,
                "base": summarize(base),
                "agoq": summarize(agoq),
                "difference": loss_difference(base, agoq),
            }
        )
    record = {"base": arguments.base, "criterion": CRITERION, "config": config, "seeds": rows}
    path = arguments.docs / "data" / "training_seeds.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    page = arguments.docs / "training.md"
    page.write_text(replace_table(page.read_text(), seeds_table(record)))

    print(seeds_table(record))
    worst = max(abs(row["difference"]) for row in rows)
    print(f"largest difference {worst:.2%}, criterion {CRITERION:.1%}")
    return 0 if worst <= CRITERION else 1


if __name__ == "__main__":
    sys.exit(main())
