"""The lab of slow links: formulas, names, table, and two short runs where root may make one."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from linklab import formulas, measure, network, peers, ranks, table, topology  # noqa: E402
from linklab.topology import Lab  # noqa: E402

GIGABIT = 10**9


def test_formulas_by_hand() -> None:
    two, four, nodes = Lab(2), Lab(4), Lab(2, 2)
    assert formulas.flat(two, "allreduce", 1000) == 1000
    assert formulas.flat(four, "allreduce", 1000) == 1500
    assert formulas.flat(four, "reduce_scatter", 1000) == 750
    # Each of two ranks of a host sends its share of both chunks of the other host, twice.
    assert formulas.flat(nodes, "allreduce", 1000) == 2000
    assert formulas.two_level(nodes, "allreduce", 1000) == 1000
    assert formulas.ring(nodes, "allreduce", 1000) == 1500
    assert formulas.encoded(4 * 128, 4) == 130
    assert formulas.encoded(2 * 128, 2) == 130


def test_an_allgather_moves_the_parts_of_all_ranks() -> None:
    assert formulas.expected(Lab(4), "allgather", "exact", 100, 4) == 300
    assert formulas.expected(Lab(2), "allreduce", "agoq", 512, 4) == 130
    assert formulas.expected(Lab(2), "allreduce", "gloo", 512, 4) is None


def test_payload_is_bytes_without_headers() -> None:
    # A thousand full frames of 1448 bytes, and fifty acknowledgements.
    assert formulas.payload(1000 * (1448 + 66) + 50 * 66, 1050) == 1_448_000


def test_counters_are_read_from_ip() -> None:
    stats = {"rx": {"bytes": 1, "packets": 2}, "tx": {"bytes": 2**40, "packets": 77}}
    assert network.parse_sent(json.dumps([{"ifname": "e0", "stats64": stats}])) == (2**40, 77)


def test_names_carry_the_process_and_are_recognized() -> None:
    lab = Lab(3, owner=4711)
    assert lab.namespaces == [
        "linklab-4711-h0",
        "linklab-4711-h1",
        "linklab-4711-h2",
        "linklab-4711-switch",
    ]
    assert {topology.owner_of(name) for name in lab.namespaces} == {4711}
    assert topology.owner_of("linklab-4711-h0-of-another") is None
    assert len(Lab(2).namespaces) == 2, "two hosts need no switch"
    with pytest.raises(ValueError, match="2 to 200 hosts"):
        Lab(1)


def test_ranks_are_numbered_host_by_host() -> None:
    lab = Lab(2, 2)
    assert [lab.host_of(rank) for rank in range(lab.ranks)] == [0, 0, 1, 1]
    variables = ranks.variables(lab, 3)
    assert (variables["RANK"], variables["LOCAL_RANK"], variables["WORLD_SIZE"]) == ("3", "1", "4")
    assert variables["AGOQ_SOCKET_IFNAME"] == variables["GLOO_SOCKET_IFNAME"] == "e0"


@pytest.mark.parametrize(
    "text,rate", [("1", GIGABIT), ("2.5gbit", 2_500_000_000), ("10G", 10 * GIGABIT), ("none", None)]
)
def test_rates_are_gigabits(text: str, rate: int | None) -> None:
    assert topology.parse_rate(text) == rate


@pytest.mark.parametrize("text", ["fast", "0", "-1", "1mbit"])
def test_other_rates_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        topology.parse_rate(text)


def test_buckets_stay_small() -> None:
    for rate in (1, 2.5, 5, 10):
        assert 128 * 1024 <= topology.burst_bytes(int(rate * GIGABIT)) <= 256 * 1024


@pytest.mark.parametrize(
    "says,family",
    [
        ("mpirun (Open MPI) 4.1.4", "Open MPI"),
        ("HYDRA build details:\n    Version: 4.2.2", "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.13 Build (id: 1)", "Intel MPI"),
        ("srun 23.02", None),
    ],
)
def test_mpis_are_told_apart(says: str, family: str | None) -> None:
    assert peers.classify(says) == family


def test_an_mpirun_without_mpi4py_is_missing_and_says_so(tmp_path: Path) -> None:
    mpirun, python = tmp_path / "mpirun", tmp_path / "python"
    mpirun.write_text("#!/bin/sh\necho mpirun '(Open MPI) 5.0.11'\n")
    python.write_text("#!/bin/sh\nexit 1\n")
    for program in (mpirun, python):
        program.chmod(0o755)
    found, missing = peers.find_mpis([str(mpirun), str(tmp_path / "none")])
    assert found == []
    assert missing[str(tmp_path / "none")] == "there is no such program"
    assert missing["Open MPI"] == f"{python} has no mpi4py (pip install mpi4py)"
    python.write_text("#!/bin/sh\nexit 0\n")
    found, missing = peers.find_mpis([str(mpirun)])
    assert [(mpi.family, mpi.python) for mpi in found] == [("Open MPI", str(python))]
    assert "Open MPI" not in missing and "Intel MPI" in missing


def test_the_remote_shell_knows_the_labs_hosts_only(tmp_path: Path) -> None:
    script = tmp_path / "shell"
    script.write_text(peers.remote_shell(Lab(2, owner=1)))
    done = subprocess.run(
        ["sh", str(script), "-x", "192.0.2.1", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 255 and "no host 192.0.2.1" in done.stderr


def _row(**changes: Any) -> dict[str, Any]:
    egress = measure.Egress("agoq", 2**24, [4.2e6, 4.2e6], 4.2e6, 1.0)
    row = {
        "lab": "2 hosts",
        "rate": "1 Gbit/s",
        "operation": "allreduce",
        "size": 2**24,
        "median_ms": {"gloo": 140.0, "exact": 136.0, "agoq": 35.0, "MPICH": 150.0},
        "agoq_faster_than": {"gloo": 4.0, "exact": 3.88, "MPICH": 4.3},
        "egress": [egress.as_dict()],
        "failures": [],
    }
    return {**row, **changes}


def test_the_table_shows_what_was_measured_and_what_is_missing() -> None:
    results = {"rows": [_row()], "missing": {"oneCCL": "it is not installed"}}
    text = table.markdown(results)
    assert "| 2 hosts | 1 Gbit/s | allreduce | 16 | 140.0 | 136.0 | 35.0 | MPICH 150.0 |" in text
    assert "| 4.00 | 3.88 | MPICH 4.30 | - | 1.0000 | - |" in text
    assert "- oneCCL: it is not installed." in text
    assert table.all_held(results)
    assert not table.all_held({"rows": [_row(failures=["times: rank 1 ended"])]})


@pytest.mark.parametrize("ratio,holds", [(1.0, True), (1.009, True), (1.02, False), (0.98, False)])
def test_bytes_off_by_more_than_a_percent_fail(ratio: float, holds: bool) -> None:
    seen = measure.Egress("exact", 2**24, [ratio], 1.0, ratio)
    assert seen.holds is holds
    assert table.all_held({"rows": [_row(egress=[seen.as_dict()])]}) is holds


def _skip_unless_a_lab_is_possible() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need root and iproute2")
    probe = Lab(2)
    try:
        network.create(probe)
    except network.LabError as error:
        pytest.skip(f"this machine makes no namespaces or shaped links: {error}")
    finally:
        network.remove(probe.namespaces)


def test_a_lab_of_two_hosts_sends_what_the_formula_says_and_vanishes() -> None:
    _skip_unless_a_lab_is_possible()
    before = network.existing()
    done = subprocess.run(
        [sys.executable, "-m", "linklab", "check", "--hosts", "2", "--rate", "1", "-m", "1M"],
        cwd=BENCH,
        text=True,
        capture_output=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("holds") == 2 and "1 Gbit/s" in done.stdout
    assert network.existing() == before


def test_an_interrupted_lab_vanishes_with_its_ranks() -> None:
    _skip_unless_a_lab_is_possible()
    running = subprocess.Popen(
        [sys.executable, "-m", "linklab", "run", "--", "sh", "-c", "echo $$; exec sleep 300"],
        cwd=BENCH,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None
    rank = int(running.stdout.readline())
    running.terminate()
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130 and "ended by SIGTERM" in said
    assert not Path(f"/proc/{rank}").exists()
    assert [name for name in network.existing() if topology.owner_of(name) == running.pid] == []
