"""When ranks die, stay away or disagree: who raises, how soon, and what the message says."""

from __future__ import annotations

import re
import time

import pytest

from programs import faults
from ranks import launch, values

FAST = 1.0  # Seconds in which a call on a failed group must raise.


def _survivors(function, size, dead=(), **arguments):
    """Values of the ranks that were not meant to die."""
    outcomes = launch(function, size, timeout=50, **arguments)
    return values([o for o in outcomes if o.rank not in dead])


def _names(message: str, operation: str, peer: int) -> None:
    first = message.splitlines()[0]
    assert re.search(rf"\brank {peer}\b", first), first
    assert re.search(rf"\bagoq: {operation}\b", first), first


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("call", faults.CALLS)
def test_a_killed_rank_is_named_at_once(size: int, call: str) -> None:
    dead = size - 1
    for seen in _survivors(faults.killed_during, size, {dead}, call=call):
        first, second = seen["calls"]
        assert first["error"] is not None, "the call succeeded without its peer"
        assert first["seconds"] < 10, "before the timeout of 15 s"
        _names(first["error"], call.split()[-1], dead)
        assert second["error"] and second["seconds"] < FAST, "later calls fail at once"
        assert seen["destroy"]["error"] is None and seen["destroy"]["seconds"] < 5


def test_async_work_and_future_carry_the_error() -> None:
    (seen,) = _survivors(faults.killed_with_async_work, 2, {1})
    for result in seen["calls"]:
        assert "rank 1" in result["error"] and "all_reduce" in result["error"]
        assert result["seconds"] < 10


@pytest.mark.parametrize("call", ["all_reduce", "exact all_reduce", "reduce_scatter"])
def test_a_rank_that_never_calls_times_out(call: str) -> None:
    seen, _ = _survivors(faults.never_calls, 2, call=call)
    first, second = seen["calls"]
    assert 1.5 < first["seconds"] < 6, first
    assert " Timed out " in first["error"]
    _names(first["error"], call.split()[-1], 1)
    assert second["error"] and second["seconds"] < FAST


@pytest.mark.parametrize(
    "case,words",
    [
        ("count", ["all_reduce", "50003", "50004"]),
        ("exact count", ["all_reduce", "100", "101"]),
        ("dtype", ["elements", "float32", "bfloat16"]),
        ("reduce op", ["reduction", "sum", "avg"]),
        ("operation", ["all_reduce", "reduce_scatter"]),
        ("quantized and exact", ["50003", "100"]),
        ("root", ["broadcast", "root 0", "root 1"]),
    ],
)
def test_a_mismatch_names_the_field_and_both_values(case: str, words: list[str]) -> None:
    results = _survivors(faults.mismatch, 2, case=case)
    for rank, seen in enumerate(results):
        first, second = seen["calls"]
        assert first["error"] is not None, f"rank {rank} did not notice"
        assert second["error"] and second["seconds"] < FAST
        for word in words:
            assert word in first["error"], (word, first["error"])
        assert f"rank {1 - rank}" in first["error"], first["error"]
        assert first["seconds"] < 7, "a mismatch is found by comparison, not by the timeout of 8 s"


DIFFERENCES = {
    "int8/64/bf16": {"block": 64},
    "int8/128/fp32": {"scale": "fp32"},
    "min_numel": {"min_numel": 5},
    "reduce_scatter": {"quantize": ["all_reduce"]},
    "stochastic": {"rounding": "stochastic"},
    "segment": {"segment_numel": 1024},
    "transport": {"transport": "gloo"},
}


@pytest.mark.parametrize("words", DIFFERENCES)
def test_options_that_differ_are_found_at_start_up(words: str) -> None:
    for seen in _survivors(faults.different_options, 2, options=DIFFERENCES[words]):
        assert seen["error"] is not None, "the group was formed"
        assert seen["seconds"] < 10
        first = seen["error"].splitlines()[0]
        assert words in first and "rank 0" in first and "rank 1" in first, first


def test_environments_that_differ_are_found_at_start_up() -> None:
    for seen in _survivors(faults.different_environment, 2):
        assert seen["error"] is not None and "int8/256/bf16" in seen["error"].splitlines()[0]


def test_destroy_with_work_pending_ends_the_work() -> None:
    first, _ = _survivors(faults.destroyed_with_work_pending, 2)
    assert first["destroyed"]["error"] is None and first["destroyed"]["seconds"] < 5
    assert first["waited"]["error"] is not None and first["waited"]["seconds"] < 5


def test_exit_without_destroy_is_clean() -> None:
    start = time.monotonic()
    assert _survivors(faults.exits_without_destroy, 2) == [True, True]
    assert time.monotonic() - start < 20


def test_a_failed_group_leaves_the_others_alone() -> None:
    first, second = _survivors(faults.one_failed_group_leaves_the_others, 2)
    assert first["subgroup"]["error"] is not None
    assert first["world"] == second["world"] == 2.0


def test_groups_leak_nothing() -> None:
    """Descriptors and threads flat, memory within 64 KiB a group, after the first fifth."""
    groups, every = 1000, 200
    outcomes = launch(faults.many_groups, 2, timeout=200, groups=groups, every=every)
    for readings in values(outcomes):
        early, late = readings[1], readings[-1]
        assert late[0] <= early[0] + 2, readings
        assert late[1] <= early[1] + 2, readings
        assert late[2] - early[2] <= 64 * (groups - every), readings
