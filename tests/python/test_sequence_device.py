"""Sequence parallelism on tensors of a device, proven on a device without hardware."""

from __future__ import annotations

import pytest

import device_fake
from checks import expect_ok
from programs import sequence_device, sequence_streams

# The first test may have to compile the device.
pytestmark = pytest.mark.timeout(device_fake.LIMIT_SECONDS + 120)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    device_fake.build()


@pytest.mark.parametrize(("size", "name"), sequence_device.checks.cases(2, 3))
def test_sequence_parallelism_on_a_device(size: int, name: str) -> None:
    expect_ok("programs.sequence_device", size, name)


@pytest.mark.parametrize(("size", "name"), sequence_streams.checks.cases(2, 3))
def test_streams(size: int, name: str) -> None:
    expect_ok("programs.sequence_streams", size, name)
