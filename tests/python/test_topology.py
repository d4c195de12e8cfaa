"""Two levels between processes: the bits of threads, bytes by the formula, and what is said."""

from __future__ import annotations

import functools
import threading
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore

import agoq_comm
import threads
from agoq_comm import _C
from programs import parity, topology
from programs.common import data
from ranks import launch, values

TWO_BY_TWO = ("a", "a", "b", "b")
UNEVEN = ("a", "b", "b", "b")
ENCODED_BYTES = topology.COUNT * (1 + 2 / 128)


def _numbers(nodes: tuple[str, ...]) -> list[int]:
    return [sorted(set(nodes)).index(node) for node in nodes]


@functools.cache
def _inproc(nodes: tuple[str, ...]) -> list[dict[str, list[str]]]:
    def rank(comm: agoq_comm.Communicator) -> dict[str, list[str]]:
        seen = {
            name: [parity.digest(comm.all_reduce(x)), parity.digest(comm.reduce_scatter(parts))]
            for name, x, parts in parity.cases(comm.rank, comm.size)
        }
        chunks = comm.all_gather(topology.gathered(comm.rank))
        seen["all_gather"] = [parity.digest(chunk) for chunk in chunks]
        exact = comm.all_reduce(data(comm.rank, topology.EXACT_COUNT).double())
        seen["exact"] = [parity.digest(exact)]
        return seen

    options = agoq_comm.Options(quantize=topology.QUANTIZE)
    return threads.run(len(nodes), rank, options, topology=_numbers(nodes))


@pytest.mark.parametrize("segment_numel", [4096, 65536])
@pytest.mark.parametrize("nodes", [TWO_BY_TWO, UNEVEN])
@pytest.mark.parametrize("transport", ["tcp", "shm", "auto", "gloo"])
def test_processes_equal_threads(
    transport: str, nodes: tuple[str, ...], segment_numel: int
) -> None:
    outcomes = launch(
        topology.results,
        len(nodes),
        transport=transport,
        nodes=nodes,
        segment_numel=segment_numel,
        timeout=60,
    )
    seen = values(outcomes)
    expected = _inproc(nodes)
    if transport == "gloo":  # It serves exact calls itself, in an order of its own.
        seen, expected = ([{**one, "exact": []} for one in all_] for all_ in (seen, expected))
    assert seen == expected


def test_results_depend_on_the_topology_and_not_on_the_rank() -> None:
    two_by_two, uneven = _inproc(TWO_BY_TWO), _inproc(UNEVEN)
    name = "torch.float32/300001"
    assert len({rank[name][0] for rank in two_by_two}) == 1
    assert two_by_two[0][name][0] != uneven[0][name][0]


def _between_nodes(nodes: tuple[str, ...], algorithm: str) -> tuple[str, dict[str, int]]:
    seen = values(launch(topology.said_and_counted, len(nodes), nodes=nodes, algorithm=algorithm))
    by_node = dict.fromkeys(nodes, 0)
    for node, rank in zip(nodes, seen, strict=True):
        assert rank["stats"]["wire_bytes"] >= rank["stats"]["wire_bytes_between_nodes"]
        by_node[node] += rank["stats"]["wire_bytes_between_nodes"]
    return seen[0]["describe"], by_node


@pytest.mark.parametrize("nodes", [TWO_BY_TWO, UNEVEN])
def test_a_node_sends_what_one_rank_would(nodes: tuple[str, ...]) -> None:
    described, by_node = _between_nodes(nodes, "auto")
    assert "algorithm two_level (several ranks on a node)" in described, described
    shape = "2 nodes of 2 ranks" if nodes == TWO_BY_TWO else "2 nodes of 1 and 3 ranks"
    assert f"topology {shape}," in described, described
    for sent in by_node.values():
        assert sent == pytest.approx(2 * 1 / 2 * ENCODED_BYTES, rel=0.01)


def test_flat_sends_that_much_for_each_rank() -> None:
    described, by_node = _between_nodes(TWO_BY_TWO, "flat")
    assert "algorithm flat (by option)" in described, described
    for sent in by_node.values():
        assert sent == pytest.approx(2 * 2 * 1 / 2 * ENCODED_BYTES, rel=0.01)


def test_ranks_of_one_host_share_a_node_unless_told_otherwise() -> None:
    described, by_node = _between_nodes(("",) * 3, "two_level")
    assert "algorithm flat (all ranks share a node)" in described, described
    assert by_node == {"": 0}


def test_ddp_trains() -> None:
    seen = values(launch(topology.ddp_step, 4, nodes=TWO_BY_TWO))
    for rank in seen:
        assert rank["weights"] == seen[0]["weights"]
        assert 0 < max(rank["errors"]) < 0.02, rank["errors"]
        assert rank["stats"]["quantized_calls"] > 0
        assert rank["stats"]["wire_bytes_between_nodes"] > 0


def test_different_algorithms_are_found_at_start_up() -> None:
    for text in values(launch(topology.different_algorithms, 3, nodes=("a", "a", "b"))):
        assert "algorithm is flat on rank 0 and two_level on rank 1" in text, text


def test_a_communicator_over_a_store_takes_a_topology() -> None:
    store = HashStore()
    options = agoq_comm.Options(transport="tcp", min_numel=0)
    options._timeout = timedelta(seconds=30)
    seen: list[tuple[str, torch.Tensor]] = []

    def rank(number: int) -> None:
        native = _C.make_communicator(
            store=store, rank=number, size=3, options=options, topology=[0, 0, 1]
        )
        comm = agoq_comm.Communicator(native)
        seen.append((comm.describe(), comm.all_reduce(data(number, 5000))))

    ranks = [threading.Thread(target=rank, args=(number,)) for number in range(3)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join(60)
    assert len(seen) == 3
    for described, result in seen:
        assert "topology 2 nodes of 2 and 1 ranks, algorithm two_level" in described, described
        assert torch.equal(result, seen[0][1])


@pytest.mark.parametrize("nodes", [[], [0, 0], [0, 1, 2, 3]])
def test_a_topology_has_a_node_for_each_rank(nodes: list[int]) -> None:
    with pytest.raises(ValueError, match="a node for each rank"):
        agoq_comm.inproc_group(3, topology=nodes)
