"""programs/collectives.py on two and three ranks."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import collectives


@pytest.mark.parametrize("size,name", collectives.checks.cases(2, 3))
def test_collectives(size: int, name: str) -> None:
    expect_ok("programs.collectives", size, name)
