"""The backend on tensors of a device, proven on a device without hardware."""

from __future__ import annotations

import pytest

import device_fake
from checks import expect_ok
from programs import device, device_faults
from ranks import launch, values


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    device_fake.build()


@pytest.mark.parametrize(("size", "name"), device.checks.cases(2, 3))
def test_device(size: int, name: str) -> None:
    expect_ok("programs.device", size, name)


@pytest.mark.parametrize("device_transport", ["auto", "host"])
def test_a_call_that_takes_too_long_fails_its_group(device_transport: str) -> None:
    seen = values(
        launch(device_faults.late_peer, 2, timeout=60, device_transport=device_transport)
    )[0]
    assert seen["call"] < 0.9, "wait() must not wait for the device"
    for words in (seen["wait"], seen["next"]):
        assert "all_reduce (call 1 on rank 0) Timed out after 1000 ms" in words
    assert seen["result"] == 2  # WorkResult.COMM_ERROR
    assert seen["success"] is False


def test_an_error_of_the_inner_backend_fails_the_group() -> None:
    seen = values(launch(device_faults.broken_inner, 2, timeout=60))[0]
    for words in (seen["wait"], seen["next"]):
        assert "fakeccl reports an error" in words
