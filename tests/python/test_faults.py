"""When ranks die, stay away or disagree: who raises, how soon, and what the message says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from programs import faults
from ranks import launch, values


def _survivors(function, size, dead=(), **arguments):
    """Values of the ranks that were not meant to die."""
    outcomes = launch(function, size, timeout=50, **arguments)
    return values([o for o in outcomes if o.rank not in dead])


def _names(message: str, operation: str, peer: int) -> None:
    first = message.splitlines()[0]
    assert re.search(rf"\brank {peer}\b", first), first
    assert re.search(rf"\bagoq: {operation}\b", first), first


def _fails_at_once(seen: dict[str, Any]) -> None:
    """A call on a failed group says so, and asks no peer."""
    assert "this group has failed before" in seen["error"], seen["error"]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("call", faults.CALLS)
def test_a_killed_rank_is_named_at_once(size: int, call: str) -> None:
    dead = size - 1
    for seen in _survivors(faults.killed_during, size, {dead}, call=call):
        first, second = seen["calls"]
        assert first["error"] is not None, "the call succeeded without its peer"
        assert "Timed out" not in first["error"], "it was to be noticed before the timeout"
        _names(first["error"], call.split()[-1], dead)
        _fails_at_once(second)
        assert seen["destroy"]["error"] is None


def test_async_work_and_future_carry_the_error() -> None:
    (seen,) = _survivors(faults.killed_with_async_work, 2, {1})
    for result in seen["calls"]:
        assert "rank 1" in result["error"] and "all_reduce" in result["error"]
        assert "Timed out" not in result["error"]


@pytest.mark.parametrize("call", ["all_reduce", "exact all_reduce", "reduce_scatter"])
def test_a_rank_that_never_calls_times_out(call: str) -> None:
    seen, _ = _survivors(faults.never_calls, 2, call=call)
    first, second = seen["calls"]
    assert first["seconds"] > 1.5, first
    assert " Timed out " in first["error"]
    _names(first["error"], call.split()[-1], 1)
    _fails_at_once(second)


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
        _fails_at_once(second)
        for word in words:
            assert word in first["error"], (word, first["error"])
        assert f"rank {1 - rank}" in first["error"], first["error"]
        assert "Timed out" not in first["error"], "a mismatch is found by comparison"


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
        first = seen["error"].splitlines()[0]
        assert words in first and "rank 0" in first and "rank 1" in first, first


def test_environments_that_differ_are_found_at_start_up() -> None:
    for seen in _survivors(faults.different_environment, 2):
        assert seen["error"] is not None and "int8/256/bf16" in seen["error"].splitlines()[0]


def test_destroy_with_work_pending_ends_the_work() -> None:
    first, _ = _survivors(faults.destroyed_with_work_pending, 2)
    # Their timeout is 60 s, and that of the launch less.
    assert first["destroyed"]["error"] is None
    assert "Timed out" not in first["waited"]["error"]


def test_exit_without_destroy_is_clean() -> None:
    assert _survivors(faults.exits_without_destroy, 2) == [True, True]


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
