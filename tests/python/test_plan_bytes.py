"""Bytes that the cost model counts one by one, against the codec and the counters of groups."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import agoq_comm
import oracle
import threads
from agoq_comm import _C, plan
from agoq_comm.plan import Cluster, Format, Link, Operation
from agoq_comm.plan.wire import balanced_chunks

blocks = st.sampled_from([32, 64, 128, 256, 512, 1024])
scales = st.sampled_from(["bf16", "fp32"])


@given(st.sampled_from(sorted(oracle.BITS)), st.integers(0, 10**7), blocks, scales)
def test_encoded_bytes_are_the_codecs(element: str, count: int, block: int, scale: str) -> None:
    native = _C.Codec(element, block, scale)
    modelled = Format(oracle.BITS[element], block, scale)
    assert modelled.encoded_bytes(count) == native.encoded_bytes(count)


@given(st.integers(0, 10**7), st.integers(1, 64), blocks)
def test_chunks_are_whole_blocks_and_make_the_buffer(count: int, ranks: int, block: int) -> None:
    chunks = balanced_chunks(count, ranks, block)
    assert sum(chunks) == count and len(chunks) == ranks and min(chunks) >= 0
    assert [chunk for chunk in chunks if chunk % block][1:] == []
    assert max(chunks) - min(chunk for chunk in chunks[:-1] or chunks) <= block


def _one_node(ranks: int) -> Cluster:
    return Cluster(ranks, ranks, Link(1e9))


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(1, 40_000), blocks, scales, st.sampled_from([4, 2]))
def test_bytes_of_an_all_reduce_are_what_counters_say(
    ranks: int, count: int, block: int, scale: str, itemsize: int
) -> None:
    dtype = {4: torch.float32, 2: torch.bfloat16}[itemsize]
    options = agoq_comm.Options(block=block, scale=scale, min_numel=0)

    def call(comm: agoq_comm.Communicator) -> int:
        comm.all_reduce(torch.ones(count, dtype=dtype))
        return comm.stats()["all_reduce"]["wire_bytes"]

    counted = threads.run(ranks, call, options)
    for rank, sent in enumerate(counted):
        assert (
            sent
            == plan.sent_bytes(
                _one_node(ranks),
                "flat",
                count,
                rank,
                itemsize=itemsize,
                format=Format(block=block, scale=scale),
            ).total
        )


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(1, 40_000))
def test_bytes_of_an_exact_all_reduce_are_what_counters_say(ranks: int, count: int) -> None:
    def call(comm: agoq_comm.Communicator) -> int:
        comm.all_reduce(torch.ones(count))
        return comm.stats()["all_reduce"]["wire_bytes"]

    counted = threads.run(ranks, call, agoq_comm.Options(quantize=()))
    known = [
        [plan.sent_bytes(_one_node(ranks), name, count, rank).total for rank in range(ranks)]
        for name in ("one_shot", "two_phase")
    ]
    # The library decides by the length which of the two it takes.
    assert counted in known
    if count * 4 > 2**17:
        assert counted == known[1]


@settings(max_examples=40)
@given(st.integers(2, 5), st.integers(1, 20_000), blocks)
def test_bytes_of_the_halves_are_what_counters_say(ranks: int, part: int, block: int) -> None:
    names = ("reduce_scatter", "all_gather")
    options = agoq_comm.Options(block=block, min_numel=0, quantize=names)

    def call(comm: agoq_comm.Communicator) -> list[int]:
        comm.reduce_scatter([torch.ones(part) for _ in range(ranks)])
        comm.all_gather(torch.ones(part))
        return [comm.stats()[name]["wire_bytes"] for name in names]

    for rank, sent in enumerate(threads.run(ranks, call, options)):
        assert sent == [
            plan.sent_bytes(
                _one_node(ranks),
                "flat",
                part * ranks,
                rank,
                operation=Operation(name),
                format=Format(block=block),
            ).total
            for name in names
        ]


@settings(max_examples=40)
@given(st.integers(2, 3), st.integers(2, 3), st.integers(1, 20_000), st.booleans(), st.booleans())
def test_bytes_of_levels_are_what_counters_say(
    nodes: int, per_node: int, part: int, quantized: bool, levels: bool
) -> None:
    cluster = Cluster(nodes * per_node, per_node, Link(1e9))
    names = ("all_reduce", "reduce_scatter", "all_gather")
    options = agoq_comm.Options(
        min_numel=0,
        quantize=names if quantized else (),
        algorithm="two_level" if levels else "flat",
    )

    def call(comm: agoq_comm.Communicator) -> list[list[int]]:
        # Long enough that no exact call is one shot.
        comm.all_reduce(torch.ones(part * comm.size + 2**16))
        comm.reduce_scatter([torch.ones(part) for _ in range(comm.size)])
        comm.all_gather(torch.ones(part))
        counted = comm.stats()
        return [
            [counted[name]["wire_bytes"], counted[name]["wire_bytes_between_nodes"]]
            for name in names
        ]

    algorithm = {
        (True, True): "two_level",
        (True, False): "flat",
        (False, True): "exact_two_level",
        (False, False): "two_phase",
    }[quantized, levels]
    topology = [rank // per_node for rank in range(cluster.ranks)]
    for rank, counted in enumerate(threads.run(cluster.ranks, call, options, topology=topology)):
        for name, (total, between) in zip(names, counted, strict=True):
            count = part * cluster.ranks + (2**16 if name == "all_reduce" else 0)
            sent = plan.sent_bytes(cluster, algorithm, count, rank, operation=Operation(name))
            assert (sent.total, sent.between) == (total, between), name
