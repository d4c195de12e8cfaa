"""Formats of pipeline ranks: never above the first rank's bytes, by an op-by-op simulation."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agoq_comm.activation.accounting import Record
from agoq_comm.activation.formats import Format
from agoq_comm.activation.pipeline import (
    byte_budget,
    peak_bytes,
    pipeline_formats,
    pipeline_policy,
)
from agoq_comm.activation.pipeline_profile import SENSITIVITIES, Profile, TensorClass, wider
from agoq_comm.activation.policy import Policy, Site
from agoq_comm.activation.schedules import PipelineSchedule
from checks import expect_ok
from pipeline_simulation import peaks, rank_ops
from programs import pipeline

# A layer of the paper in elements: attention exact, two norms and SiLU * up in fp4.
UNIT = 4096
PAPER = Profile(
    (
        TensorClass("attention", (5 * UNIT,), 2, "keep"),
        TensorClass("norm", (UNIT, 2 * UNIT), 2, "fp4/128", 0.003),
        TensorClass("mlp", (8 * UNIT,), 2, "fp4/128", 0.051),
    )
)
FORMATS = ["fp4/128", "fp4/32", "int4/128", "e2m3/128", "int6/64/fp32", "int8/128", "keep"]
WITHOUT_ATTENTION = Profile(PAPER.classes[1:])


@st.composite
def schedules(draw: st.DrawFn) -> PipelineSchedule:
    p = draw(st.integers(1, 6))
    v = draw(st.integers(1, 4))
    m = draw(st.integers(1, 20))
    kind = draw(st.sampled_from(["1f1b", "gpipe"]))
    group = draw(st.none() | st.integers(min(p, m), m))
    try:
        return PipelineSchedule(p, m, v, group, kind)
    except ValueError:
        assume(False)
        raise


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    return Profile(
        tuple(
            TensorClass(
                f"class{index}",
                tuple(draw(st.lists(st.integers(0, 3000), max_size=3))),
                draw(st.sampled_from([2, 4])),
                draw(st.sampled_from(FORMATS)),
                draw(st.floats(0, 1)),
            )
            for index in range(draw(st.integers(0, 5)))
        )
    )


def simulated(schedule: PipelineSchedule, nbytes: list[int]) -> list[int]:
    lists = [
        rank_ops(
            schedule.kind,
            schedule.ranks,
            rank,
            schedule.chunks,
            schedule.group,
            schedule.microbatches,
        )
        for rank in range(schedule.ranks)
    ]
    return peaks(lists, schedule.chunks, lambda rank, chunk: nbytes[rank])


@settings(max_examples=150)
@given(schedules())
def test_in_flight_is_what_the_simulation_holds(schedule: PipelineSchedule) -> None:
    ranks = range(schedule.ranks)
    assert [schedule.in_flight(r) for r in ranks] == simulated(schedule, [1] * schedule.ranks)


@settings(max_examples=150)
@given(schedules(), profiles())
def test_no_rank_holds_more_than_the_first(schedule: PipelineSchedule, profile: Profile) -> None:
    ranks = range(schedule.ranks)
    formats = [pipeline_formats(profile, schedule, r) for r in ranks]
    held = simulated(schedule, [profile.stored_bytes(f) for f in formats])
    narrowest = simulated(schedule, [profile.stored_bytes(profile.formats())] * schedule.ranks)
    assert max(held) <= narrowest[0] == byte_budget(profile, schedule)
    assert held == [peak_bytes(profile, schedule, r, formats[r]) for r in ranks]
    for chosen in formats:
        for kept in profile.classes:
            assert kept.error(chosen[kept]) <= kept.error(kept.format)
            assert kept.format != "keep" or chosen[kept] == "keep"


@settings(max_examples=100)
@given(schedules(), st.lists(st.integers(128, 3000), min_size=1, max_size=4))
def test_no_further_step_fits(schedule: PipelineSchedule, numels: list[int]) -> None:
    profile = Profile(
        tuple(
            TensorClass(str(i), (numel,), 2, "fp4/128", 0.01 * (i + 1))
            for i, numel in enumerate(numels)
        )
    )
    budget = byte_budget(profile, schedule)
    for rank in range(schedule.ranks):
        formats = pipeline_formats(profile, schedule, rank)
        for kept, format in formats.items():
            step = wider(format)
            if step is not None:
                assert peak_bytes(profile, schedule, rank, formats | {kept: step}) > budget


@settings(max_examples=100)
@given(schedules())
def test_megatron_counts_the_same_warm_up(schedule: PipelineSchedule) -> None:
    from megatron.core.pipeline_parallel import schedules as megatron

    assume(schedule.kind == "1f1b" and schedule.ranks > 1)
    p, m, v, group = schedule.ranks, schedule.microbatches, schedule.chunks, schedule.group
    for rank in range(p):
        place = SimpleNamespace(
            pp_group=SimpleNamespace(size=lambda: p, rank=lambda rank=rank: rank),
            virtual_pipeline_model_parallel_size=None if v == 1 else v,
        )
        total, _, warm_up, steady = megatron.get_pp_rank_microbatches(
            m, v, group, p2p_communicator=place
        )
        assert schedule.in_flight(rank) == min(total, warm_up + 1)
        forwards = [op for op in rank_ops("1f1b", p, rank, v, group, m) if op.forward]
        table = megatron.get_schedule_table(m, v, group)
        assert [(op.microbatch, op.chunk) for op in forwards] == table
        assert steady == total - warm_up


def test_four_ranks_with_two_chunks() -> None:
    schedule = PipelineSchedule(4, microbatches=8, chunks=2)
    assert [schedule.in_flight(rank) for rank in range(4)] == [11, 9, 7, 5]


@pytest.mark.parametrize(
    "profile,caps,widths",
    [
        # With quantized bytes alone the paper's 5 bits on rank 1 need 9 * 5 = 45 of 44 bits.
        (WITHOUT_ATTENTION, [4, 4.9, 6.3, 8.8], [4, 4, 6, 8]),
        # The exact attention that rank 0 holds more of gives the others room.
        (PAPER, [4, 6.5, 10.4, 17.5], [4, 6, 8, 16]),
    ],
)
def test_uniform_widths_against_the_papers_rule(
    profile: Profile, caps: list[float], widths: list[int]
) -> None:
    schedule = PipelineSchedule(4, microbatches=8, chunks=2)
    held = [schedule.in_flight(rank) for rank in range(4)]
    exact = sum(sum(c.numels) * 16 for c in profile.classes if c.format == "keep")
    quantized = sum(sum(c.numels) for c in profile.classes if c.format != "keep")
    budget = held[0] * (exact + 4 * quantized)
    cap = [(budget - n * exact) / (n * quantized) for n in held]
    assert cap == pytest.approx(caps, abs=0.05)
    assert [max(w for w in (4, 6, 8, 16) if w <= c) for c in cap] == widths
    if profile is WITHOUT_ATTENTION:
        by_rule = [min(n * round(4 * held[0] / n), n * 16) for n in held]
        assert [round(4 * held[0] / n) for n in held] == [4, 5, 6, 9]
        assert by_rule[1] / (4 * held[0]) == pytest.approx(1.023, abs=0.001)


def by_name(formats: dict[TensorClass, str]) -> dict[str, str]:
    return {kept.name: format for kept, format in formats.items()}


def test_the_papers_layer() -> None:
    schedule = PipelineSchedule(4, microbatches=8, chunks=2)
    formats = [by_name(pipeline_formats(PAPER, schedule, rank)) for rank in range(4)]
    assert formats[0] == by_name(PAPER.formats())
    assert formats[1] == {"attention": "keep", "norm": "e2m3/128", "mlp": "e2m3/128"}
    assert formats[2] == {"attention": "keep", "norm": "keep", "mlp": "int8/128"}
    assert formats[3] == {"attention": "keep", "norm": "keep", "mlp": "keep"}


def saved(name: str, format: str) -> Record:
    dtype = torch.float32
    stored = int(4096 * Format.parse(format).bits_per_element / 8)
    return Record(name, name, (64, 64), dtype, 4 * 4096, stored, 64, format, False, "")


@pytest.mark.parametrize("policy", [Policy.agoq(), Policy.agoq(norm="fp4/128")])
def test_sensitivities_are_of_a_class_in_fp4(policy: Policy) -> None:
    site = Site("", (torch.nn.Module, torch.nn.RMSNorm), torch.float32, (64, 64))
    norm = str(policy.decide(site).format)
    records = [saved("norm", norm), saved("mlp", "fp4/128"), saved("own", "int8/128")]
    classes = {kept.name: kept for kept in Profile.of(records).classes}
    for name in ("norm", "mlp"):
        assert classes[name].error("fp4/128") == pytest.approx(SENSITIVITIES[name])
    # Of E2M3 by RELATIVE_ERROR's ratio: 0.026 * 0.0265 / 0.109.
    least = {"e2m3/128": 0.00632, "fp4/128": 0.026}[norm]
    assert classes["norm"].error(norm) == pytest.approx(least, rel=1e-3)
    assert classes["own"].error("fp4/128") == pytest.approx(1)
    told = Profile.of(records, {"norm": 0.5}).classes[0]
    assert told.error("fp4/128") == pytest.approx(0.5)


def test_norms_in_6_bits_wait_for_what_loses_more() -> None:
    # A linear layer of as many elements in fp4 loses 4 times as much of the gradient.
    profile = Profile.of([saved("norm", "e2m3/128"), saved("linear", "fp4/128")])
    norm, linear, _ = profile.classes
    schedule = PipelineSchedule(1, microbatches=1)
    room = peak_bytes(profile, schedule, 0, profile.formats() | {linear: "e2m3/128"})
    assert peak_bytes(profile, schedule, 0, profile.formats() | {norm: "int8/128"}) == room
    chosen = pipeline_formats(profile, schedule, 0, room)
    assert chosen == profile.formats() | {linear: "e2m3/128"}


def test_the_most_sensitive_goes_first() -> None:
    # With room for one of both: the SiLU's input is 17 times as sensitive and 2.7 times as large.
    schedule = PipelineSchedule(1, microbatches=1)
    mlp = PAPER.classes[2]
    room = peak_bytes(PAPER, schedule, 0, PAPER.formats() | {mlp: "e2m3/128"})
    formats = pipeline_formats(PAPER, schedule, 0, room)
    assert formats == PAPER.formats() | {mlp: "e2m3/128"}


def test_a_policy_of_a_rank_changes_what_has_room_and_nothing_else() -> None:
    def site(kind: type, *shape: int) -> Site:
        return Site("layer", (torch.nn.Module, kind), torch.bfloat16, shape)

    policy = Policy.agoq(norm="fp4/128")
    sites = {
        "norm": site(torch.nn.RMSNorm, 64, 64),
        "statistic": site(torch.nn.RMSNorm, 4096, 1),
        "mlp": site(torch.nn.SiLU, 64, 64),
        "attention": site(torch.nn.MultiheadAttention, 64, 64),
        "linear": site(torch.nn.Linear, 64, 64),
    }

    def formats(rank: int) -> dict[str, str]:
        chosen = pipeline_policy(policy, 4, rank, 2, None, 8, PAPER)
        assert chosen.recompute
        return {name: str(chosen.decide(at).format or "keep") for name, at in sites.items()}

    kept = {"statistic": "keep", "attention": "keep", "linear": "fp4/128"}
    assert pipeline_policy(policy, 4, 0, 2, None, 8, PAPER) == policy
    assert formats(0) == kept | {"norm": "fp4/128", "mlp": "fp4/128"}
    assert formats(1) == kept | {"norm": "e2m3/128", "mlp": "e2m3/128"}
    assert formats(2) == kept | {"norm": "keep", "mlp": "int8/128"}


def test_a_policys_default_becomes_wider_too() -> None:
    policy = Policy(default="fp4/128")
    chosen = pipeline_policy(policy, 4, 1, 2, None, 8, PAPER)
    site = Site("", (torch.nn.Module, torch.nn.SiLU), torch.bfloat16, (64, 64))
    assert str(chosen.decide(site).format) == "e2m3/128"
    assert str(policy.decide(site).format) == "fp4/128"


def test_gpipe_leaves_nothing_over() -> None:
    schedule = PipelineSchedule(4, microbatches=8, kind="gpipe")
    for rank in range(4):
        assert schedule.in_flight(rank) == 8
        assert pipeline_formats(PAPER, schedule, rank) == PAPER.formats()


def test_a_budget_of_ones_own() -> None:
    schedule = PipelineSchedule(2, microbatches=4)
    least = peak_bytes(PAPER, schedule, 0, PAPER.formats())
    assert pipeline_formats(PAPER, schedule, 0, least) == PAPER.formats()
    with pytest.raises(ValueError, match="1 more than the budget"):
        pipeline_formats(PAPER, schedule, 0, least - 1)
    assert set(pipeline_formats(PAPER, schedule, 0, 4 * least).values()) == {"keep"}


@pytest.mark.parametrize(
    "arguments,message",
    [
        ({"ranks": 0, "microbatches": 4}, "ranks is 0"),
        ({"ranks": 4, "microbatches": 8, "chunks": 2, "group_size": 3}, "from 4 to 8"),
        ({"ranks": 4, "microbatches": 8, "chunks": 2, "group_size": 9}, "from 4 to 8"),
        ({"ranks": 4, "microbatches": 9, "chunks": 2}, "leave 1 of 9"),
        ({"ranks": 4, "microbatches": 9, "kind": "zero_bubble"}, "no schedule"),
    ],
)
def test_schedules_that_do_not_exist(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PipelineSchedule(**arguments)


def test_a_class_listed_twice_would_be_paid_for_once() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        Profile((PAPER.classes[1], PAPER.classes[1]))


def test_ranks_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="rank is 4"):
        PipelineSchedule(4, 8).in_flight(4)


@pytest.mark.parametrize("size,name", pipeline.checks.cases(4))
def test_torch_pipelining(size: int, name: str) -> None:
    expect_ok("programs.pipeline", size, name, timeout=240)
