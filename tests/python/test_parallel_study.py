"""The study of gradients: what is made of its results."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import finished_runs
import parallel_study
import train_parallel_llama

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


@pytest.mark.parametrize("variant", [v for v in LOSSES if v != parallel_study.BASE])
def test_the_verdict_is_no_where_runs_are_missing(variant: str) -> None:
    runs = results()
    assert parallel_study.verdict(runs)
    others = [run for run in runs if run["config"]["variant"] != variant]
    assert not parallel_study.verdict(others)
    one_seed = [r for r in runs if r["config"] != {"variant": variant, "seed": 1}]
    assert not parallel_study.verdict(one_seed)


def test_only_a_run_of_the_same_configuration_is_finished(tmp_path: Path) -> None:
    words = ["--variants", "exact", "--steps", "2"]
    (config,) = train_parallel_llama.configurations(train_parallel_llama.parse_arguments(words))
    folder = tmp_path / "runs"
    assert finished_runs.read(folder, config.made_with(4)) is None
    finished_runs.write(folder, config.made_with(4), {"validation_loss": 2.0})
    assert finished_runs.read(folder, config.made_with(4)) == {"validation_loss": 2.0}
    assert finished_runs.read(folder, config.made_with(2)) is None
    others = {"learning_rate": 2e-3, "clip": 2.0, "evaluate_every": 1, "width": 64, "seed": 1}
    for field, value in others.items():
        other = replace(config, **{field: value})
        assert finished_runs.read(folder, other.made_with(4)) is None, field


def test_a_run_of_another_version_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"variant": "exact", "seed": 0}
    finished_runs.write(tmp_path, config, {})
    assert finished_runs.read(tmp_path, config) == {}
    monkeypatch.setattr(finished_runs.agoq_comm, "__version__", "0")
    assert finished_runs.read(tmp_path, config) is None


def test_a_file_that_tells_of_another_run_is_not_read(tmp_path: Path) -> None:
    config = {"variant": "exact", "seed": 0, "rate": 1.0}
    finished_runs.write(tmp_path, config, {})
    (path,) = tmp_path.iterdir()
    record = json.loads(path.read_text())
    record["made_with"]["config"]["rate"] = 2.0
    path.write_text(json.dumps(record))
    assert finished_runs.read(tmp_path, config) is None


def test_the_study_reads_the_runs_that_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torchrun(ranks: int, script: str, *words: str) -> None:
        assert script == "examples/train_parallel_llama.py"
        arguments = train_parallel_llama.parse_arguments(words)
        for config in train_parallel_llama.configurations(arguments):
            for rate in (config.learning_rate, 0.5):
                made = replace(config, learning_rate=rate)
                run = {"variant": made.variant, "seed": made.seed, "rate": rate}
                finished_runs.write(arguments.runs, made.made_with(ranks), run)

    monkeypatch.setattr(parallel_study, "torchrun", torchrun)
    found = parallel_study.train([3, 4], 2, tmp_path)
    assert found == [
        {"variant": variant, "seed": seed, "rate": 1e-3}
        for seed in (3, 4)
        for variant in parallel_study.LABELS
    ]


def test_the_tables() -> None:
    table = parallel_study.table(results())
    assert (
        "| control: micro-batches added in int8 | 2.1000 (+5.00%) | 3.1000 (+3.33%) | 3 |" in table
    )
    assert set(LOSSES) == set(parallel_study.LABELS)
    sums = parallel_study.sums_table(results())
    assert "| fp4, ring | 0.0300 | 0.0300 |" in sums
    assert "| int8, all-reduce | 0.0100 | 0.0100 |" in sums
