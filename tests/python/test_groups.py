"""programs/groups.py on two and three ranks, programs/subgroups.py on four; what a group logs."""

from __future__ import annotations

import logging

import pytest

from checks import expect_ok
from programs import groups, subgroups
from ranks import Rank, launch, values


@pytest.mark.parametrize("size,name", groups.checks.cases(2, 3))
def test_groups(size: int, name: str) -> None:
    expect_ok("programs.groups", size, name)


@pytest.mark.parametrize("size,name", subgroups.checks.cases(4))
def test_subgroup_of_three_in_a_world_of_four(size: int, name: str) -> None:
    expect_ok("programs.subgroups", size, name)


def logs_of_two_groups(me: Rank) -> list[str]:
    """What the logger "agoq_comm" was told while the default group and one more were made."""
    import torch
    import torch.distributed as dist

    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("agoq_comm")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    me.init_process_group()
    group = dist.new_group()
    dist.all_reduce(torch.ones(20_000), group=group)
    dist.destroy_process_group()
    return [record.getMessage() for record in records]


def test_a_new_group_is_logged_and_nothing_is_printed() -> None:
    outcomes = launch(logs_of_two_groups, 2)
    for rank, messages in enumerate(values(outcomes)):
        assert len(messages) == 2, messages
        for message in messages:
            assert f"rank {rank} of 2" in message and "int8/128/bf16" in message, message
    assert [outcome.output for outcome in outcomes] == ["", ""]
