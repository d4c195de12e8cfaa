"""programs/sharded.py on two and three ranks."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import sharded


@pytest.mark.parametrize("size,name", sharded.checks.cases(2, 3))
def test_sharded(size: int, name: str) -> None:
    expect_ok("programs.sharded", size, name)
