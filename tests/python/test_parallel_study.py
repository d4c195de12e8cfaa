"""The study of gradients: what is made of its results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import parallel_study

LOSSES = {
    "exact": 2.0,
    "activations": 2.001,
    "both": 1.999,
    "narrow-sums": 2.1,
    "reduce-scatter-fp4": 2.002,
    "ring-fp4": 2.04,
    "ring": 2.001,
}


def results(**losses: float) -> list[dict[str, Any]]:
    """Make up results of two seeds; `losses` are what differs from LOSSES."""
    return [
        {
            "config": {"variant": variant, "seed": seed},
            "validation_loss": loss + seed,
            "errors_of_sums": {"ring": 0.03, "all-reduce": 0.01} if "ring" in variant else {},
            "sent_between_model_ranks": {"all_reduce": {"wire_bytes": 3 << 20}},
        }
        for variant, loss in (LOSSES | losses).items()
        for seed in (0, 1)
    ]


def test_the_verdict() -> None:
    assert parallel_study.verdict(results())
    assert not parallel_study.verdict(results(both=2.02))
    assert not parallel_study.verdict(results(**{"reduce-scatter-fp4": 1.98}))
    assert not parallel_study.verdict(results(**{"ring-fp4": 2.001}))
    assert not parallel_study.verdict(results(**{"narrow-sums": 2.001}))
    # What is wrong with one seed is wrong.
    runs = results()
    runs[-3]["validation_loss"] = 3.0
    assert runs[-3]["config"] == {"variant": "ring-fp4", "seed": 1}
    assert not parallel_study.verdict(runs)


def test_a_ring_in_int8_is_told_by_its_sums() -> None:
    runs = results()
    for run in runs:
        if run["config"]["variant"] == "ring":
            run["errors_of_sums"]["ring"] = 0.015
    assert not parallel_study.verdict(runs)


def test_the_tables() -> None:
    table = parallel_study.table(results())
    assert (
        "| control: micro-batches added in int8 | 2.1000 (+5.00%) | 3.1000 (+3.33%) | 3 |" in table
    )
    assert set(LOSSES) == set(parallel_study.LABELS)
    sums = parallel_study.sums_table(results())
    assert "| fp4, ring | 0.0300 | 0.0300 |" in sums
    assert "| int8, all-reduce | 0.0100 | 0.0100 |" in sums
