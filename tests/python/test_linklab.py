"""The lab of slow links: formulas, names, table, and two short runs where root may make one."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import labs
from linklab import (
    cases,
    figure,
    formulas,
    markdown,
    network,
    peers,
    ranks,
    table,
    targets,
    topology,
)
from linklab.cases import Case
from linklab.topology import Lab

GIGABIT = 10**9


def test_formulas_by_hand() -> None:
    assert formulas.flat(2, 1, "allreduce", 1000) == 1000
    assert formulas.flat(4, 1, "allreduce", 1000) == 1500
    assert formulas.flat(4, 1, "reduce_scatter", 1000) == 750
    # Each of two ranks of a host sends its share of both chunks of the other host, twice.
    assert formulas.flat(2, 2, "allreduce", 1000) == 2000
    assert formulas.two_level(2, "allreduce", 1000) == 1000
    assert formulas.ring(4, "allreduce", 1000) == 1500
    assert formulas.encoded(4 * 128, 4) == 130
    assert formulas.encoded(2 * 128, 2) == 130


def test_the_formula_follows_contender_and_layout() -> None:
    assert formulas.expected(4, 1, "allgather", "exact", 400, 4) == 300
    assert formulas.expected(2, 1, "allreduce", "agoq", 512, 4) == 130
    assert formulas.expected(2, 2, "allreduce", "flat", 512, 4) == 260
    assert formulas.expected(2, 1, "allreduce", "gloo", 512, 4) is None


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
    assert Lab(1, 2).interface == "lo" and Lab(1, 2).namespaces[0].endswith("-h0")
    with pytest.raises(ValueError, match="1 to 200 hosts"):
        Lab(0)


def test_ranks_are_numbered_host_by_host() -> None:
    lab = Lab(2, 2)
    assert [lab.host_of(rank) for rank in range(lab.ranks)] == [0, 0, 1, 1]
    variables = ranks.variables(lab, 3)
    assert (variables["RANK"], variables["LOCAL_RANK"], variables["WORLD_SIZE"]) == ("3", "1", "4")
    assert variables["MASTER_ADDR"] == lab.address(0)
    # Hosts of one machine must not each count all of its cores.
    assert ranks.thread_counts(Lab(100))["AGOQ_CODEC_THREADS"] == "1"
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
    found, missing = peers.find([str(mpirun), str(tmp_path / "none")], None)
    assert found == []
    assert missing[str(tmp_path / "none")] == "there is no such program"
    assert missing["Open MPI"] == f"{python} has no mpi4py (pip install mpi4py)"
    python.write_text("#!/bin/sh\nexit 0\n")
    found, missing = peers.find([str(mpirun)], None)
    assert [(mpi.family, mpi.python) for mpi in found] == [("Open MPI", str(python))]
    assert "Open MPI" not in missing
    assert missing["Intel MPI"] == missing["oneCCL"]
    assert "python -m linklab peers" in missing["oneCCL"]


def test_the_remote_shell_knows_the_labs_hosts_only(tmp_path: Path) -> None:
    script = tmp_path / "shell"
    script.write_text(peers.remote_shell(Lab(2, owner=1)))
    done = subprocess.run(
        ["sh", str(script), "-x", "192.0.2.1", "true"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 255 and "no host 192.0.2.1" in done.stderr


def test_mpis_start_on_the_labs_hosts_and_alone_without_a_remote_shell() -> None:
    lab = Lab(2, 2, owner=1)
    for family, words in (
        ("Intel MPI", ["-hosts", "10.77.0.1,10.77.0.2", "-ppn", "2"]),
        ("Open MPI", ["--host", "10.77.0.1:2,10.77.0.2:2"]),
    ):
        mpi = peers.Mpi(family, "/there/bin/mpirun", "/there/bin/python")
        command = peers.mpirun_command(mpi, lab, ["program"])
        assert command[:3] == ["/there/bin/mpirun", "-n", "4"] and set(words) <= set(command)
        assert command[-2:] == ["/there/bin/python", "program"]
        alone = peers.mpirun_command(mpi, Lab(1, 2), ["program"])
        assert not any("host" in word for word in alone)
    variables = peers.launcher_variables(Lab(1, 2), Path("shell"))
    assert variables["I_MPI_HYDRA_BOOTSTRAP"] == variables["HYDRA_LAUNCHER"] == "fork"
    assert peers.launcher_variables(lab, Path("shell"))["I_MPI_HYDRA_BOOTSTRAP"] == "ssh"


def _measured(case: Case, **seconds: list[float]) -> dict[str, Any]:
    """What a session reports of a case whose every byte is as the formula says."""
    contenders = {}
    for name, times in seconds.items():
        sent = formulas.expected(
            case.hosts, case.ranks_per_host, case.operation, name, case.size, 4
        )
        least = formulas.at_least(case.hosts, case.operation, name, case.size, 4)
        contenders[name] = {
            "seconds": times,
            "egress_bytes": [sent or least] * case.hosts if case.hosts > 1 else [],
            "describe": None,
            "relative_error": 0.008,
            "valid": True,
        }
    return {**case.as_dict(), "took": 1.0, "contenders": contenders}


ROW = Case(2, 1, GIGABIT)


def _results(*rows: dict[str, Any]) -> dict[str, Any]:
    return {**table.new_results(), "rows": list(rows)}


def test_a_ratio_is_the_median_over_the_rounds() -> None:
    row = table.make_row(
        _measured(ROW, gloo=[0.5, 0.6, 0.9], exact=[0.4, 0.4, 0.4], agoq=[0.1, 0.2, 0.1]), "direct"
    )
    assert row["faster"]["agoq/gloo"] == pytest.approx(5)
    assert row["faster"]["agoq/exact"] == pytest.approx(4)
    assert row["faster"]["exact/gloo"] == pytest.approx(1.5)
    assert row["contenders"]["gloo"]["median_ms"] == pytest.approx(600)
    assert row["contenders"]["agoq"]["egress_ratio"] == pytest.approx(1)
    assert "egress_ratio" not in row["contenders"]["gloo"]
    assert table.problems(_results(row)) == []
    under_mpi = table.make_row(_measured(ROW, mpi=[0.5], exact=[0.4], agoq=[0.1]), "Open MPI")
    assert under_mpi["faster"]["agoq/Open MPI"] == pytest.approx(5)


def test_the_table_shows_what_was_measured_and_what_is_missing() -> None:
    row = table.make_row(_measured(ROW, gloo=[0.5], exact=[0.4], agoq=[0.125]), "direct")
    results = _results(row)
    results["missing"] = {"oneCCL": "it is not installed"}
    results["failures"] = [{"name": "a row", "launcher": "Open MPI", "why": "rank 1\nso\nended\n"}]
    text = markdown.rows(results)
    assert (
        "| allreduce float32 64 MiB, 2 hosts, 1 Gbit/s | direct | "
        "gloo 500.0, exact 400.0, agoq 125.0 | exact 1.25, agoq 4.00 | agoq 3.20 | "
        "exact 1.0000, agoq 1.0000 |" in text
    )
    assert "- oneCCL: it is not installed." in text
    assert "- a row (Open MPI): rank 1 ... ended." in text


@pytest.mark.parametrize("ratio,holds", [(1.009, True), (1.02, False), (0.98, False)])
def test_bytes_off_by_more_than_a_percent_are_wrong(ratio: float, holds: bool) -> None:
    measured = _measured(ROW, exact=[0.4], agoq=[0.1])
    measured["contenders"]["exact"]["egress_bytes"][1] *= ratio
    wrong = table.problems(_results(table.make_row(measured, "direct")))
    assert bool(wrong) is not holds
    assert all(f"exact: sent {ratio:.4f} of the formula" in problem for problem in wrong[-1:])


def test_bytes_that_went_around_the_links_and_wrong_sums_are_wrong() -> None:
    measured = _measured(ROW, gloo=[0.4], agoq=[0.1])
    measured["contenders"]["gloo"]["egress_bytes"][0] /= 2
    measured["contenders"]["agoq"].update(valid=False, relative_error=0.5)
    wrong = table.problems(_results(table.make_row(measured, "direct")))
    assert [problem.rsplit(", ", 1)[1] for problem in wrong[:1]] == ["through shared memory"]
    assert wrong[1].endswith("agoq: relative error 5.00e-01")


def test_every_target_names_a_row_of_the_table_and_who_is_compared_there() -> None:
    by_name = {case.name: case for case in cases.TABLE}
    assert len(by_name) == len(cases.TABLE), "rows are told apart by name"
    for target in targets.TARGETS:
        case = by_name[target.row]
        assert target.fast in case.contenders
        for base in target.bases:
            assert base in case.contenders or case.against_peers


def test_targets_are_met_missed_or_not_measured() -> None:
    quick = table.make_row(_measured(ROW, gloo=[0.4], exact=[0.4], agoq=[0.1]), "direct")
    nodes = Case(2, 2, GIGABIT, contenders=("agoq", "flat"))
    slow = table.make_row(_measured(nodes, agoq=[0.3], flat=[0.4]), "direct")
    codec_row = {"operation": "encode, by segment", "type": "float32", "elements": 2**24}
    codec_row |= {"bound": "read", "ratio": 0.5}
    codec = {
        "rows": [
            {**codec_row, "seconds": seconds, "bound_ratio": ratio}
            for seconds, ratio in ((2.0, 0.5), (1.0, 0.95), (3.0, 0.99))
        ]
    }
    words = {v.what: v.word for v in targets.check(_results(quick, slow), codec)}
    assert words[f"{ROW.name}: agoq faster than gloo"] == "met"
    assert words[f"{nodes.name}: agoq faster than flat"] == "MISSED"
    assert words[f"{nodes.name}: bytes beside the formula"] == "met"
    assert words["encode, by segment, fp32 from memory, beside its bound: read"] == "met"
    assert list(words.values()).count("not measured") == len(words) - 4
    assert "| MISSED |" in markdown.verdicts(_results(quick, slow), None)


def test_every_target_of_the_codec_was_recorded() -> None:
    codec = json.loads((labs.BENCH / "results" / "codec.json").read_text())
    measured = {v.what: v.measured for v in targets.check(_results(), codec)}
    for operation, bound, _ in targets.CODEC:
        assert measured[f"{operation}, fp32 from memory, beside its bound: {bound}"] is not None


def test_rows_are_selected_and_survive_json() -> None:
    one = cases.select(layouts=[(2, 1)], rates=[GIGABIT], operations=["allgather"])
    assert [case.name for case in one] == ["allgather float32 64 MiB, 2 hosts, 1 Gbit/s"]
    assert Case.from_dict(json.loads(json.dumps(one[0].as_dict()))) == one[0]
    assert all(case.size <= 8 * cases.MIB for case in cases.select(quick=True))
    assert {case.size for case in cases.select(rates=[GIGABIT], sizes=[1000])} == {1000}


def test_rows_that_are_not_measured_again_are_kept() -> None:
    old = table.make_row(_measured(ROW, gloo=[0.9], agoq=[0.9]), "direct")
    other = table.make_row(_measured(ROW, mpi=[0.9], agoq=[0.9]), "Open MPI")
    new = table.make_row(_measured(ROW, gloo=[0.4], agoq=[0.1]), "direct")
    results = _results(new)
    failed = {"name": ROW.name, "launcher": "direct", "why": "long ago"}
    table.keep_rows(results, {**_results(old, other), "failures": [failed]})
    assert results["rows"] == [other, new] and results["failures"] == []


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = [
        table.make_row(
            _measured(Case(2, 1, rate * GIGABIT), gloo=[0.4], exact=[0.4], agoq=[0.1]), "direct"
        )
        for rate in (10, 1)
    ]
    figure.draw(_results(*rows), tmp_path / "a" / "linklab.png")
    assert (tmp_path / "a" / "linklab.png").stat().st_size > 1000


@pytest.mark.parametrize("per_host", [1, 2])
def test_a_lab_of_two_hosts_sends_what_the_formula_says_and_vanishes(per_host: int) -> None:
    labs.skip_unless_possible()
    shape = ["--hosts", "2", "--per-host", str(per_host), "--rate", "1"]
    running = subprocess.Popen(
        [sys.executable, "-m", "linklab", "check", *shape, "-m", "4M"],
        cwd=labs.BENCH,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    printed, said = running.communicate(timeout=250)
    assert running.returncode == 0, printed + said
    assert printed.count("holds") == 2 and "1 Gbit/s" in printed
    assert [n for n in network.existing() if topology.owner_of(n) == running.pid] == []


def test_a_rate_changes_while_ranks_run() -> None:
    labs.skip_unless_possible()
    lab = Lab(3, rate=GIGABIT)
    try:
        network.create(lab)
        network.set_rate(lab, 5 * GIGABIT)
        shown = ["tc", "-n", lab.switch, "qdisc", "show", "dev", "p2"]
        done = subprocess.run(shown, capture_output=True, text=True, check=True)
        assert "tbf" in done.stdout and "5Gbit" in done.stdout
        network.set_rate(lab, None)
        done = subprocess.run(shown, capture_output=True, text=True, check=True)
        assert "tbf" not in done.stdout
    finally:
        network.remove(lab.namespaces)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_interrupted_table_leaves_its_files_and_no_lab(
    number: signal.Signals, tmp_path: Path
) -> None:
    labs.skip_unless_possible()
    paths = [f"--{kind}={tmp_path / kind}" for kind in ("json", "markdown", "plot")]
    running = subprocess.Popen(
        [sys.executable, "-m", "linklab", "table", "--quick", "--no-peers", *paths],
        cwd=labs.BENCH,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    namespaces: list[str] = []
    processes: list[int] = []
    deadline = time.monotonic() + 60
    while len(processes) < 2:  # One rank on each host.
        assert time.monotonic() < deadline and running.poll() is None
        namespaces = [n for n in network.existing() if topology.owner_of(n) == running.pid]
        processes = [process for name in namespaces for process in network.processes_in(name)]
        time.sleep(0.1)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130 and f"ended by {number.name}" in said
    assert not any(Path(f"/proc/{process}").exists() for process in processes)
    assert [n for n in network.existing() if topology.owner_of(n) == running.pid] == []
    assert json.loads((tmp_path / "json").read_text())["rows"] == []


def test_an_interrupted_lab_vanishes_with_its_ranks() -> None:
    labs.skip_unless_possible()
    running = subprocess.Popen(
        [sys.executable, "-m", "linklab", "run", "--", "sh", "-c", "echo $$; exec sleep 300"],
        cwd=labs.BENCH,
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
