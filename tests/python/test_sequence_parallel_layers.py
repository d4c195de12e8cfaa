"""programs/sequence_layers.py on two and three ranks."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import sequence_layers


@pytest.mark.parametrize("size,name", sequence_layers.checks.cases(2, 3))
def test_layers(size: int, name: str) -> None:
    expect_ok("programs.sequence_layers", size, name, timeout=240)
