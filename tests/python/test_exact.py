"""programs/exact.py on two and three ranks."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import exact


@pytest.mark.parametrize("size,name", exact.checks.cases(2, 3))
def test_exact(size: int, name: str) -> None:
    expect_ok("programs.exact", size, name)
