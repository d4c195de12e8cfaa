"""The budget of the CUDA kernels notices what it is there for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import kernel_budget

BUDGET = {"k": {"registers": 32, "spills": 0, "loads_of_16_bytes": 2}}


def test_equal_and_better_are_within_the_budget() -> None:
    assert kernel_budget.compare(BUDGET, BUDGET) == []
    better = {"k": {"registers": 30, "spills": 0, "loads_of_16_bytes": 3}}
    assert kernel_budget.compare(better, BUDGET) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"k": BUDGET["k"] | {"registers": 33}}, "registers is 33, the budget 32"),
        ({"k": BUDGET["k"] | {"spills": 8}}, "spills is 8"),
        ({"k": BUDGET["k"] | {"loads_of_16_bytes": 1}}, "loads_of_16_bytes is 1"),
        ({"k": {"registers": 32, "spills": 0}}, "loads_of_16_bytes is None"),
        (BUDGET | {"new": {}}, "new: not in the budget"),
        ({}, "k: in the budget, but there is no such kernel"),
    ],
)
def test_worse_missing_and_unknown_are_found(found: dict[str, dict[str, int]], words: str) -> None:
    (finding,) = kernel_budget.compare(found, BUDGET)
    assert words in finding


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", "fused"),
        ("mad.rn.f32 %f1, %f2, %f3, %f4;", "fused"),
        ("div.approx.f32 %f1, %f2, %f3;", "flushing or approximate"),
        ("add.rn.ftz.f32 %f1, %f2, %f3;", "flushing or approximate"),
        ("mul.f32 %f1, %f2, %f3;", "does not state its rounding"),
        ("ld.local.u32 %r1, [%rd1];", "local memory"),
        ("st.shared.u32 [%r1], %r2;", "shared memory"),
    ],
)
def test_what_no_kernel_may_do_is_recognised(line: str, what: str) -> None:
    found = [name for name, rule in kernel_budget.FORBIDDEN.items() if rule.search(line)]
    assert len(found) == 1 and what in found[0]


def test_ordinary_arithmetic_is_not() -> None:
    for line in ("mul.rn.f32 %f1, %f2, %f3;", "mad.lo.s32 %r1, %r2, %r3, %r4;", "add.s64 %rd1, 8;"):
        assert not any(rule.search(line) for rule in kernel_budget.FORBIDDEN.values())


def test_names_of_instances_are_readable() -> None:
    mangled = (
        "_ZN4agoq4cuda13encode_kernelINS_4Int8ELNS_8DataTypeE1ELi1ELb0EEEvNS0_15EncodeArgumentsE"
    )
    assert kernel_budget.short_name(mangled) == "encode_kernel<Int8, 1, 1, 0>"
    mangled = "_ZN4agoq4cuda17accumulate_kernelINS_3Fp4EEEvNS0_15DecodeArgumentsE"
    assert kernel_budget.short_name(mangled) == "accumulate_kernel<Fp4>"
