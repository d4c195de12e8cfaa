"""The cost model: what holds for every prediction and choice, and what bad arguments get."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agoq_comm
from agoq_comm import plan
from agoq_comm.plan import Cluster, Compute, Format, Link, Operation

GIGABIT = 1e9 / 8

counts = st.integers(0, 100_000)
links = st.builds(Link, st.floats(1e6, 1e12), st.floats(0, 1e-2), st.booleans())
computes = st.builds(Compute, *[st.floats(1e7, 1e13)] * 4, st.floats(0, 1e-4))
clusters = st.builds(
    lambda nodes, per_node, between, within, compute: Cluster(
        nodes * per_node, per_node, between, within, compute
    ),
    st.integers(1, 64), st.integers(1, 16), links, links, computes,
)  # fmt: skip
# Any operation, and an algorithm that knows it.
kinds = st.one_of(
    st.tuples(
        st.sampled_from(list(Operation)),
        st.sampled_from(["two_phase", "flat", "two_level", "exact_two_level", "ring"]),
    ),
    st.just((Operation.ALL_REDUCE, "one_shot")),
)


def _one_node(ranks: int) -> Cluster:
    return Cluster(ranks, ranks, Link(1e9))


@given(clusters, kinds, counts, st.sampled_from(plan.SEGMENTS))
def test_no_figure_is_negative_and_the_busiest_bounds_the_time(
    cluster: Cluster, kind: tuple[Operation, str], count: int, segment: int
) -> None:
    operation, algorithm = kind
    found = plan.predict(cluster, algorithm, count, operation=operation, segment_numel=segment)
    busy = (found.core_seconds, found.within_seconds, found.between_seconds)
    assert min(*busy, found.node_bytes) >= 0
    assert found.seconds >= max(busy) * (1 - 1e-9)
    assert found.bound in ("core", "within", "between", "latency")


@given(clusters, kinds, counts, st.floats(1, 1000))
def test_more_bandwidth_is_never_slower(
    cluster: Cluster, kind: tuple[Operation, str], count: int, by: float
) -> None:
    operation, algorithm = kind
    faster = cluster.at(cluster.between.bandwidth * by)
    slow, fast = (plan.predict(c, algorithm, count, operation=operation) for c in (cluster, faster))
    assert fast.seconds <= slow.seconds * (1 + 1e-9)
    assert fast.node_bytes == pytest.approx(slow.node_bytes)


@given(clusters, kinds, counts)
def test_more_elements_are_never_faster(
    cluster: Cluster, kind: tuple[Operation, str], count: int
) -> None:
    operation, algorithm = kind
    short, long = (
        plan.predict(cluster, algorithm, n, operation=operation, segment_numel=2**20)
        for n in (count, 2 * count + 1)
    )
    assert short.core_seconds <= long.core_seconds and short.node_bytes <= long.node_bytes


@given(clusters, counts, st.sampled_from(list(Operation)))
def test_the_choice_is_the_fastest_and_can_be_set(
    cluster: Cluster, count: int, operation: Operation
) -> None:
    best = plan.choose(cluster, count, operation=operation)
    assert best.segment_numel in plan.SEGMENTS and best.segment_numel % 128 == 0
    agoq_comm.Options(segment_numel=best.segment_numel)
    for name in ("two_phase", "flat"):
        assert best.seconds <= plan.predict(cluster, name, count, operation=operation).seconds
    exact = plan.choose(cluster, count, operation=operation, quantized=False)
    assert exact.algorithm not in plan.QUANTIZED and exact.seconds >= best.seconds


def test_the_formulas_by_hand() -> None:
    cluster = Cluster(8, 4, Link(1e9, 0))
    count = 8 * 128 * 100
    for name in ("two_phase", "flat", "two_level", "exact_two_level"):
        for operation in Operation:
            # To the byte, and by the model's averages.
            by_rank = [
                plan.sent_bytes(cluster, name, count, rank, operation=operation)
                for rank in range(4)
            ]
            average = plan.predict(cluster, name, count, operation=operation).node_bytes
            assert sum(sent.between for sent in by_rank) == pytest.approx(average)
    encoded = count * 130 / 128
    sent = {
        name: plan.predict(cluster, name, count).node_bytes
        for name in ("two_phase", "flat", "two_level", "ring")
    }
    # Two nodes: half of what four ranks have, out of the node, twice; or as if a node were a rank.
    assert sent["flat"] == pytest.approx(4 * encoded)
    assert sent["two_level"] == pytest.approx(encoded)
    assert sent["two_phase"] == pytest.approx(4 * count * 4)
    assert sent["ring"] == pytest.approx(2 * 7 / 8 * count * 4)


def test_choices_that_anyone_would_make() -> None:
    slow = Cluster(64, 8, Link(10 * GIGABIT))
    assert plan.choose(slow, 2**24).algorithm == "two_level"
    assert plan.choose(Cluster(8, 1, Link(GIGABIT)), 2**24).algorithm == "flat"
    assert plan.choose(Cluster(2, 1, Link(10 * GIGABIT)), 64).algorithm == "one_shot"
    # Nothing is gained by encoding where the link is faster than the codec.
    fast = Cluster(2, 1, Link(1e12, 0), compute=Compute(transport=1e13))
    assert plan.choose(fast, 2**24).algorithm == "two_phase"
    tiny, huge = (
        plan.predict(slow, "flat", 2**26, segment_numel=segment).seconds for segment in (128, 2**20)
    )
    assert tiny > 5 * huge, "every message costs something"


def test_segments_are_the_options_elements_or_bytes_of_exact_calls() -> None:
    cluster = Cluster(2, 1, Link(GIGABIT))
    default = agoq_comm.Options().segment_numel
    assert default in plan.SEGMENTS

    def steps(algorithm: str, itemsize: int) -> float:
        # What a message costs tells how many there are: in two phases, sent and received.
        costs = [
            plan.predict(
                dataclasses.replace(cluster, compute=Compute(message=message)),
                algorithm,
                2 * 64 * default,
                itemsize=itemsize,
            ).core_seconds
            for message in (0.0, 1.0)
        ]
        return (costs[1] - costs[0]) / (2 * 2)

    assert [steps("flat", 4), steps("flat", 2)] == pytest.approx([64, 64])
    assert [steps("two_phase", 4), steps("two_phase", 2)] == pytest.approx([256, 128])


@pytest.mark.parametrize(
    "make,match",
    [
        (lambda: Link(0), "bandwidth is 0; it must be more than 0"),
        (lambda: Link(float("nan")), "bandwidth is nan"),
        (lambda: Link(1, -1), "latency is -1"),
        (lambda: Compute(sum=-2), "sum is -2"),
        (lambda: Compute(message=-1), "message costs -1"),
        (lambda: Compute().shared(0), "cores is 0"),
        (lambda: Cluster(6, 4, Link(1)), "6 ranks are not so many nodes of 4"),
        (lambda: Cluster(0, 1, Link(1)), "0 ranks"),
        (lambda: Format(bits=9), "1 to 8 bits"),
        (lambda: Format(scale="fp64"), "bf16 or fp32"),
        (lambda: plan.predict(_one_node(2), "tree", 1), "no algorithm 'tree'; there is one_shot"),
        (lambda: plan.predict(_one_node(2), "flat", -1), "count is -1"),
        (lambda: plan.predict(_one_node(2), "flat", 1, itemsize=3), "itemsize is 3"),
        (lambda: plan.predict(_one_node(2), "flat", 1, segment_numel=0), "segment_numel is 0"),
        (
            lambda: plan.predict(_one_node(2), "one_shot", 1, operation=Operation.ALL_GATHER),
            "one_shot is an all-reduce, not all_gather",
        ),
        (lambda: plan.sent_bytes(_one_node(2), "flat", 1, 2), "no rank 2 among 2"),
        (
            lambda: plan.sent_bytes(_one_node(2), "flat", 3, 0, operation=Operation.ALL_GATHER),
            "3 elements are not 2 equal parts",
        ),
        (lambda: plan.sent_bytes(_one_node(2), "ring", 1, 0), "nobody has counted"),
        (lambda: plan.fit([]), "nothing to fit"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(make, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()
