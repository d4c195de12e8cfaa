"""The backend on tensors of a device, proven on a device without hardware."""

from __future__ import annotations

import pytest

import device_fake
from checks import expect_ok
from programs import device, device_faults, device_limits, device_threads
from ranks import launch, values

# The first test may have to compile the device.
pytestmark = pytest.mark.timeout(device_fake.LIMIT_SECONDS + 120)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    device_fake.build()


@pytest.mark.parametrize(("size", "name"), device.checks.cases(2, 3))
def test_device(size: int, name: str) -> None:
    expect_ok("programs.device", size, name)


@pytest.mark.parametrize(("size", "name"), device_threads.checks.cases(2))
def test_threads(size: int, name: str) -> None:
    expect_ok("programs.device_threads", size, name)


@pytest.mark.parametrize("device_transport", ["auto", "host"])
def test_a_call_that_takes_too_long_fails_its_group(device_transport: str) -> None:
    seen = values(
        launch(device_faults.late_peer, 2, timeout=60, device_transport=device_transport)
    )[0]
    assert seen["unfinished"], "wait() must not wait for the device"
    for words in (seen["wait"], seen["next"]):
        assert "all_reduce (call 1 on rank 0) Timed out after 2000 ms" in words
    assert seen["result"] == 2  # WorkResult.COMM_ERROR
    assert seen["success"] is False


def test_a_device_that_cannot_be_prepared_fails_its_group_once_peers_may_wait() -> None:
    first, second = values(launch(device_faults.preparation_fails, 2, timeout=60))
    assert "no codec" in first["harmless"], "nothing of the group was used up"
    for words in (first["call"], first["next"]):
        assert "could not be prepared for fake:0: fake: no pinned memory" in words
    assert second["call"] and second["next"], "the peer was not told"


@pytest.mark.parametrize(
    ("throws", "words"), [(False, "fakeccl reports an error"), (True, "fakeccl is past speaking")]
)
def test_an_error_of_the_inner_backend_fails_the_group(throws: bool, words: str) -> None:
    seen = values(launch(device_faults.broken_inner, 2, timeout=60, throws=throws))[0]
    for said in (seen["wait"], seen["next"]):
        assert words in said


def test_a_group_of_more_ranks_than_kernels_take_is_exact() -> None:
    for seen in values(launch(device_limits.more_ranks_than_the_kernels_take, 3, timeout=60)):
        assert seen["reasons"] == {"device": 2}
        assert "fake tensors: exact, since kernels sum up to 2 ranks' pieces" in seen["describe"]


def test_collectives_on_a_device_are_flat_on_several_nodes() -> None:
    for seen in values(launch(device_limits.on_two_nodes, 3, timeout=60)):
        assert "algorithm two_level" in seen["describe"]
        assert "fake tensors: quantized, algorithm flat whatever the topology" in seen["describe"]
        assert seen["is_flat"]
        between = seen["stats"]["wire_bytes_between_nodes"]
        assert between == seen["on_cpu"]["wire_bytes_between_nodes"] > 0
