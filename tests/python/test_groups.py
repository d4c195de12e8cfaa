"""programs/groups.py on two and three ranks."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import groups


@pytest.mark.parametrize("size,name", groups.checks.cases(2, 3))
def test_groups(size: int, name: str) -> None:
    expect_ok("programs.groups", size, name)
