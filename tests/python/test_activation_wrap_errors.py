"""examples/activation_errors.py, on a small model."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch

from wrapped_models import LENGTH, demo, tokens  # Which also lets examples be imported.

BOUNDS = {"fp4/128": 0.2, "e2m3/128": 0.05, "int8/128": 0.02}


@pytest.fixture
def activation_errors() -> ModuleType:
    return importlib.import_module("activation_errors")


def test_errors_by_kind_of_layer(activation_errors: ModuleType) -> None:
    model = demo(1)
    classes = [type(module) for module in model.modules()]
    rows = tokens(LENGTH + 1)
    found = activation_errors.errors(model, [rows, rows.flip(1)])
    assert [type(module) for module in model.modules()] == classes
    everything = found.pop("**all but attention: `Policy.agoq(...)`**")
    narrow = found.pop("the same, norms no wider: `Policy.agoq(..., norm=...)`")
    control = found.pop("control: attention too")
    other = found.pop("for comparison: other rows")["exact"]
    for fmt, bound in BOUNDS.items():
        assert 0 < everything[fmt] <= bound < other
        # By more or less depends on training, which this model has none of.
        assert control[fmt] != everything[fmt]
        # Of all in one format, which the others are not in 4 bits, since norms have 6.
        assert all(0 < kind[fmt] < narrow[fmt] for kind in found.values())
    assert everything["fp4/128"] < narrow["fp4/128"]
    for kind in found.values():
        assert kind["int8/128"] < kind["e2m3/128"] < kind["fp4/128"]


def test_norms_lose_less_the_wider_they_are(activation_errors: ModuleType) -> None:
    torch.manual_seed(0)
    found = list(activation_errors.errors_of_norms().values())
    assert found == sorted(found, reverse=True) and found[-1] < 0.005


@pytest.mark.parametrize("dtype,most", [(torch.bfloat16, 6.90), (torch.float32, 10.90)])
def test_units_of_a_layer(activation_errors: ModuleType, dtype: torch.dtype, most: float) -> None:
    stock, hooks, layers = (
        activation_errors.held_by_layer(dtype, way) for way in ("as it is", "`compress`", "`wrap_`")
    )
    assert layers <= most < hooks < 0.4 * stock
