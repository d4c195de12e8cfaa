"""The studies of activations: short runs, and what is made of their results."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import activation_memory
import activation_study
from train_llama import TrainConfig


def test_a_short_study() -> None:
    config = TrainConfig("none", 2, 2, 64, 1e-3, 0, 2, 4)
    runs = [activation_study.train(variant, config) for variant in activation_study.LABELS]
    exact, wrapped, paper, uniform = runs
    assert wrapped["held_bytes"] < 0.4 * exact["held_bytes"]
    # Norms in 6 bits rather than 4; and attention in 4 bits, of which there is more.
    assert uniform["held_bytes"] < paper["held_bytes"] < wrapped["held_bytes"]
    # Two steps of a warm-up change little; not the same, though.
    assert 0 < abs(activation_study.difference(wrapped, runs)) < 0.005
    assert activation_study.difference(exact, runs) == 0
    table = activation_study.table(runs, {"fp4": 0.1})
    assert f"{exact['validation_loss']:.4f}" in table
    assert "fp4 0.100" in table


def test_gradient_errors_fall_with_the_width() -> None:
    config = TrainConfig("none", 2, 2, 64, 1e-3, 0, 2, 4)
    errors = activation_study.gradient_errors(config)
    assert 0.2 > errors["fp4"] > errors["e2m3"] > errors["int8"] > 0
    assert errors["e2m3"] < 0.05
    assert errors["int8"] < 0.02


def test_bytes_are_those_of_distinct_storages() -> None:
    x = torch.zeros(100)
    assert activation_memory.nbytes([x, x[:50], x.view(10, 10), None, torch.zeros(3)]) == 412


def test_an_optimizers_state_in_8_bits_is_counted() -> None:
    pytest.importorskip("torchao", reason="torchao is not installed")
    from torchao.optim.subclass_8bit import OptimState8bit

    state = OptimState8bit.zeros((64, 256))
    elements = 64 * 256
    # Codes, one fp32 scale for 256 of them, and the table of what codes mean.
    assert activation_memory.nbytes([state]) == elements + 4 * elements // 256 + 4 * 256


def test_the_table_of_memory() -> None:
    names = ("parameters", "activations", "gradients", "optimizer", "peak")
    rows = [dict.fromkeys(names, 2.0**20 * size) for size in (4, 2, 2, 1)]
    table = activation_memory.table(rows)
    assert "| 4.0 | 4.0 | 4.0 | 4.0 | 16.0 | +0% | +0% | 4.0 |" in table
    assert "| 1.0 | 1.0 | 1.0 | 1.0 | 4.0 | -75% | -75% | 1.0 |" in table
