"""Wider formats for the pipeline ranks that hold fewer microbatches, within the first rank's bytes.

In 1F1B the first rank holds the most microbatches, so it sets the memory that every device must
have. Later ranks have that memory too, and spend what they would leave unused on accuracy.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace

from agoq_comm.activation.pipeline_profile import Profile, TensorClass, wider
from agoq_comm.activation.policy import Policy, Rule
from agoq_comm.activation.schedules import Kind, PipelineSchedule

_ROOM = "this pipeline rank has room for it"


def byte_budget(profile: Profile, schedule: PipelineSchedule) -> int:
    """Return the bytes that rank 0 holds at its peak with the narrowest formats."""
    return schedule.in_flight(0) * profile.stored_bytes(profile.formats())


def pipeline_formats(
    profile: Profile, schedule: PipelineSchedule, rank: int, budget: int | None = None
) -> dict[TensorClass, str]:
    """Choose the format of each tensor class on one rank.

    Classes become wider one step at a time, fp4 to e2m3 to int8 to exactly kept, the step that
    removes most error a byte first. Errors of different tensors are independent, so what a step
    removes is the difference of squares.

    Parameters
    ----------
    profile : Profile
        What a chunk keeps for one microbatch.
    schedule : PipelineSchedule
        How many of these a rank holds.
    rank : int
        The pipeline rank to choose for.
    budget : int, optional
        Bytes that the rank may hold at its peak; by default what rank 0 holds with the narrowest
        formats. Name it where chunks differ between ranks.

    Returns
    -------
    dict
        Format of each class.

    Raises
    ------
    ValueError
        Where even the narrowest formats need more than the budget.
    """
    if budget is None:
        budget = byte_budget(profile, schedule)
    held = schedule.in_flight(rank)
    formats = profile.formats()
    left = budget - held * profile.stored_bytes(formats)
    if left < 0:
        raise ValueError(
            f"pipeline: rank {rank} holds {held} chunk-microbatches, {budget - left} bytes in the "
            f"narrowest formats, {-left} more than the budget of {budget}"
        )
    classes = profile.classes
    steps = [(-_worth(kept, kept.format), index) for index, kept in enumerate(classes)]
    heapq.heapify(steps)
    while steps:
        worth, index = heapq.heappop(steps)
        kept = classes[index]
        step = wider(formats[kept])
        if worth == 0 or step is None:
            continue
        cost = held * _extra_bytes(kept, formats[kept], step)
        # A step that does not fit ends its class; a smaller one of another class may still fit.
        if cost <= left:
            left -= cost
            formats[kept] = step
            heapq.heappush(steps, (-_worth(kept, step), index))
    return formats


def pipeline_policy(
    policy: Policy,
    p: int,
    rank: int,
    v: int,
    group_size: int | None,
    microbatches: int,
    profile: Profile,
    *,
    kind: Kind = "1f1b",
    budget: int | None = None,
) -> Policy:
    """Return the policy of one pipeline rank: `policy` with wider formats where there is room.

    Parameters
    ----------
    policy : Policy
        Of rank 0, with the narrowest formats.
    p, rank, v, group_size, microbatches
        The schedule, see `PipelineSchedule`, and the rank in it.
    profile : Profile
        What a chunk keeps for one microbatch under `policy`; `Profile.of` measures it.
    kind : {"1f1b", "gpipe"}
        With 1F1B, more than one chunk interleaves it.
    budget : int, optional
        See `pipeline_formats`.
    """
    schedule = PipelineSchedule(p, microbatches, v, group_size, kind)
    formats = pipeline_formats(profile, schedule, rank, budget)
    changed = {kept: format for kept, format in formats.items() if format != kept.format}
    rules: list[Rule] = []
    for rule in policy.rules:
        rules += [
            replace(rule, format=format, tensor_class=kept.name, reason=_ROOM)
            for kept, format in changed.items()
            if str(rule.format) == kept.format and rule.tensor_class in (None, kept.name)
        ]
        rules.append(rule)
    rules += [
        Rule(format, tensor_class=kept.name, reason=_ROOM)
        for kept, format in changed.items()
        if str(policy.default) == kept.format
    ]
    return Policy(rules, policy.default, policy.recompute)


def peak_bytes(
    profile: Profile, schedule: PipelineSchedule, rank: int, formats: Mapping[TensorClass, str]
) -> int:
    """Return the bytes that a rank holds at its peak with these formats."""
    return schedule.in_flight(rank) * profile.stored_bytes(formats)


def _extra_bytes(kept: TensorClass, format: str, step: str) -> int:
    return kept.stored_bytes(step) - kept.stored_bytes(format)


def _worth(kept: TensorClass, format: str) -> float:
    """Error removed by a byte of the next step; 0 where there is none."""
    step = wider(format)
    if step is None or not kept.numels:
        return 0.0
    removed = kept.error(format) ** 2 - kept.error(step) ** 2
    return removed / max(1, _extra_bytes(kept, format, step))
