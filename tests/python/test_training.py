"""programs/training.py on two and three ranks."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import training


@pytest.mark.parametrize("size,name", training.checks.cases(2, 3))
def test_training(size: int, name: str) -> None:
    expect_ok("programs.training", size, name)
