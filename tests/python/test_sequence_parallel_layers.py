"""programs/sequence_layers.py and _modes.py on two and three ranks, _norms.py on two and four."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import sequence_layers, sequence_modes, sequence_norms


@pytest.mark.parametrize("size,name", sequence_layers.checks.cases(2, 3))
def test_layers(size: int, name: str) -> None:
    expect_ok("programs.sequence_layers", size, name, timeout=240)


@pytest.mark.parametrize("size,name", sequence_modes.checks.cases(2, 3))
def test_modes(size: int, name: str) -> None:
    expect_ok("programs.sequence_modes", size, name)


@pytest.mark.parametrize("size,name", sequence_norms.checks.cases(2, 4))
def test_norms(size: int, name: str) -> None:
    expect_ok("programs.sequence_norms", size, name, timeout=240)
