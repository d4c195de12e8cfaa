"""Gradients in 8 bits of parameters that are on a device."""

from __future__ import annotations

import pytest

import device_fake
from checks import expect_ok
from programs import gradients_device

# The first test may have to compile the device.
pytestmark = pytest.mark.timeout(device_fake.LIMIT_SECONDS + 120)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    device_fake.build()


@pytest.mark.parametrize(("size", "name"), gradients_device.checks.cases(2))
def test_gradients_on_a_device(size: int, name: str) -> None:
    expect_ok("programs.gradients_device", size, name)
