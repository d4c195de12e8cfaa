"""programs/sequence_llama.py on four ranks: two replicas of two."""

from __future__ import annotations

import pytest

from checks import expect_ok
from programs import sequence_llama


@pytest.mark.parametrize("size,name", sequence_llama.checks.cases(4))
def test_example(size: int, name: str) -> None:
    expect_ok("programs.sequence_llama", size, name, timeout=240)
