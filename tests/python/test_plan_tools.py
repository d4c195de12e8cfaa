"""The cost model's calibration, its figure, and its command line."""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from agoq_comm import plan
from agoq_comm.plan import (
    Cluster,
    Compute,
    Link,
    Operation,
    __main__,
    calibration,
    samples,
    scaling,
)

GIGABIT = 1e9 / 8

TRUTH = calibration.Constants(
    goodput=0.93,
    latency=2e-4,
    compute=Compute(1.5e9, 2e9, 3e9, 5e9, 5e-6),
    within=Link(3.5e9, 5e-6, copied=True),
)


def _linklab(path: Path, constants: calibration.Constants) -> Path:
    """Write what linklab would have measured if the model were the truth."""
    rows = []
    for hosts, per_host in ((2, 1), (4, 1), (2, 2)):
        for rate in (1, 2.5, 5, 10):
            contenders = {}
            for name in ("exact", "agoq", "flat"):
                cluster = constants.cluster(
                    hosts * per_host, per_host, rate * GIGABIT, 2 / (hosts * per_host)
                )
                levels = per_host > 1 and name != "flat"
                described = "algorithm two_level (so)" if levels else "algorithm flat (so)"
                algorithm = samples.algorithm_of(name, described)
                seconds = plan.predict(cluster, algorithm, 2**24).seconds
                contenders[name] = {"median_ms": 1e3 * seconds, "describe": described}
            rows.append(
                {
                    "name": f"{hosts}x{per_host} {rate}",
                    "launcher": "direct",
                    "hosts": hosts,
                    "transport": "auto",
                    "ranks_per_host": per_host,
                    "rate": rate * 1e9,
                    "operation": "allreduce",
                    "dtype": "float32",
                    "size": 2**26,
                    "contenders": contenders,
                }
            )
    loopback = {**rows[0], "hosts": 1, "transport": "tcp", "rate": None}
    path.write_text(json.dumps({"cores": 2, "rows": [*rows, loopback]}))
    return path


def test_constants_are_found_again(tmp_path: Path) -> None:
    measured = plan.read_samples(_linklab(tmp_path / "lab.json", TRUTH))
    assert len(measured) == 36, "sockets within a host are not modelled"
    found = plan.fit(measured)
    assert found.goodput == pytest.approx(TRUTH.goodput, rel=0.05)
    assert statistics.median(map(abs, plan.errors(found, measured))) < 0.02
    left_out = [abs(error) for _, error in plan.leave_one_rate_out(measured)]
    assert len(left_out) == 36 and statistics.median(left_out) < 0.1
    # Twice as slow a world is not predicted by these constants: errors are seen.
    slow = [dataclasses.replace(sample, seconds=2 * sample.seconds) for sample in measured]
    assert statistics.median(plan.errors(found, slow)) == pytest.approx(-0.5, abs=0.05)


def test_one_rate_alone_cannot_be_left_out(tmp_path: Path) -> None:
    measured = plan.read_samples(_linklab(tmp_path / "lab.json", TRUTH))
    with pytest.raises(ValueError, match="one rate only"):
        plan.leave_one_rate_out([s for s in measured if s.bandwidth == GIGABIT])
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="no result of linklab"):
        plan.read_samples(tmp_path / "other.json")


def test_osu_results_are_samples_of_one_node(tmp_path: Path) -> None:
    results = {
        "benchmark": "Allgather",
        "ranks": 2,
        "dtype": "bfloat16",
        "results": [
            {"contender": name, "size": size, "median_us": 1000.0}
            for name in ("gloo", "agoq")
            for size in (1024, 2**20)
        ],
    }
    path = tmp_path / "osu.json"
    path.write_text(json.dumps(results))
    (sample,) = plan.read_samples(path)
    assert (sample.per_node, sample.count, sample.itemsize) == (2, 2**20, 2)
    assert (sample.algorithm, sample.operation) == ("flat", Operation.ALL_GATHER)
    assert sample.seconds == pytest.approx(1e-3) and plan.fit([sample]).goodput > 0
    path.write_text(json.dumps({**results, "benchmark": "Barrier"}))
    with pytest.raises(ValueError, match="Barrier is not modelled"):
        plan.read_samples(path)


@pytest.mark.parametrize(
    "text,value",
    [("100Gbit", 12.5e9), ("12.5GB", 12.5e9), ("1Mbit/s", 125e3), ("10gbit", 1.25e9)],
)
def test_bandwidths_are_read(text: str, value: float) -> None:
    assert __main__.parse_bandwidth(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "parse,text",
    [
        (__main__.parse_bandwidth, "100"),
        (__main__.parse_bandwidth, "0Gbit"),
        (__main__.parse_size, "many"),
        (__main__.parse_latency, "20"),
    ],
)
def test_other_figures_are_refused(parse, text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=text):
        parse(text)


def test_the_shell_prints_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--ranks", "16", "--per-node", "8", "--bandwidth", "10Gbit"]
    assert __main__.main(shape) == 0
    printed = capsys.readouterr().out
    assert printed.count("<- chosen") == 1 and "two_level" in printed
    assert __main__.main([*shape, "--operation", "all_gather", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["chosen"]["algorithm"] in plan.ALGORITHMS
    assert {row["algorithm"] for row in known["all"]} == set(plan.ALGORITHMS) - {"one_shot"}
    assert __main__.main(["--ranks", "9", "--per-node", "8"]) == 1
    assert "9 ranks are not so many nodes of 8" in capsys.readouterr().err


def test_the_shell_fits_validates_and_uses_what_it_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = str(_linklab(tmp_path / "lab.json", TRUTH))
    assert __main__.main(["fit", lab]) == 0
    (tmp_path / "constants.json").write_text(capsys.readouterr().out)
    assert __main__.main(["--constants", str(tmp_path / "constants.json")]) == 0
    capsys.readouterr()
    assert __main__.main(["validate", lab]) == 0
    assert "36 rows" in capsys.readouterr().out
    assert __main__.main(["fit", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err


def test_scaling_is_drawn_and_tabulated(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = scaling.points(Cluster(8, 8, Link(1e9)), 2**20, 4, ranks=(8, 64), gigabits=(10, 100))
    scaling.draw(found, "title", tmp_path / "a" / "scaling.png")
    assert (tmp_path / "a" / "scaling.png").stat().st_size > 1000
    lines = scaling.table(found).splitlines()
    assert lines[0] == "| ranks | 10 Gbit/s | 100 Gbit/s |" and len(lines) == 4
    assert found[2].faster > 1, "eight nodes at 10 Gbit/s"


def test_a_page_is_filled_between_its_marks(tmp_path: Path) -> None:
    tool = Path(__file__).resolve().parents[2] / "tools" / "fill_page.py"
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- a: begin -->\nold\n<!-- a: end -->\nafter\n")
    for text in ("new", "newer"):
        subprocess.run(
            [sys.executable, str(tool), str(page), "a"], input=text, text=True, check=True
        )
    assert page.read_text() == ("before\n<!-- a: begin -->\n\nnewer\n\n<!-- a: end -->\nafter\n")
    done = subprocess.run(
        [sys.executable, str(tool), str(page), "b"],
        input="",
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1 and "no section 'b'" in done.stderr
