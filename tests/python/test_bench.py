"""The OSU-style programs: command line, launchers, and the text that scripts read."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

from _common import command_line, launcher  # noqa: E402
from _common.buffers import Buffers  # noqa: E402
from programs import bench_program  # noqa: E402
from ranks import launch, values  # noqa: E402

PROGRAMS = sorted(path.stem for path in BENCH.glob("osu_*.py"))


def run_program(program: str, *flags: str) -> str:
    """What the program prints on two ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        # Nobody else gets the port while this is open; rank 0's store, which sets the same, may.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = probe.getsockname()[1]
        outcomes = launch(
            bench_program.run, 2, timeout=120, program=program, flags=list(flags), port=port
        )
    assert values(outcomes) == [0, 0], outcomes[0].output
    return outcomes[0].output


# What a script does that plots OMB's output: # begins a comment, blanks separate columns.
def osu_rows(text: str) -> list[list[float]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [[float(field) for field in line.split() if field != "Pass"] for line in lines]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_text_of_one_backend_is_osus(program: str) -> None:
    text = run_program(program, "-m", "4K:8K", "-i", "3", "-x", "1", "-c", "--backend", "exact")
    assert re.match(r"# OSU.* Test\n", text.lstrip()), text
    heading = text.lstrip().splitlines()[-3 if program != "osu_barrier" else -2]
    rows = osu_rows(text)
    if program == "osu_barrier":
        assert re.fullmatch(r"#\s+Avg Latency\(us\)", heading), text
        assert len(rows) == 1 and rows[0][0] > 0
        return
    figure = r"Bandwidth \(MB/s\)" if program == "osu_bw" else r"Avg Latency\(us\)"
    assert re.fullmatch(rf"# Size\s+{figure}\s+Validation", heading), text
    assert [row[0] for row in rows] == [4096, 8192]
    assert all(len(row) == 2 and row[1] > 0 for row in rows)
    assert text.count("Pass") == 2


def test_a_comparison_writes_every_contender_at_every_size(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out.json"
    flags = ["-m", "256K:512K", "-i", "3", "-x", "1", "-c", "-b", "numpy", "--json", str(out)]
    run_program("osu_reduce_scatter", *flags, "--vs", "gloo,exact,agoq")
    rows = json.loads(out.read_text())["results"]
    assert [(row["size"], row["contender"]) for row in rows] == [
        (size, name) for size in (2**18, 2**19) for name in ("gloo", "exact", "agoq")
    ]
    assert all(row["valid"] for row in rows)
    exact, agoq = rows[1], rows[2]
    assert exact["wire_bytes"] == 2**17 and exact["relative_error"] < 1e-6
    assert 2**17 / 4 < agoq["wire_bytes"] < 2**17 / 3.9 and agoq["relative_error"] > 1e-3


@pytest.mark.parametrize(
    "text,sizes",
    [("1:8", (1, 2, 4, 8)), ("4K", tuple(2**i for i in range(13))), ("1M:1M", (2**20,))],
)
def test_message_sizes_double_from_min_to_max(text: str, sizes: tuple[int, ...]) -> None:
    assert command_line.parse_sizes(text) == sizes


@pytest.mark.parametrize(
    "flags", [["-b", "numpy", "-d", "cuda"], ["-b", "cupy"], ["-i", "0"], ["--vs", "gloo,gloo"]]
)
def test_contradictions_on_the_command_line_are_refused(flags: list[str]) -> None:
    with pytest.raises(SystemExit):
        command_line.parse("test", "1:8", flags)


def test_numpy_allocates_what_torch_sees() -> None:
    cpu = torch.device("cpu")
    assert Buffers(torch.int32, cpu, "numpy").empty(7).dtype == torch.int32
    with pytest.raises(SystemExit, match="bfloat16"):
        Buffers(torch.bfloat16, cpu, "numpy").empty(7)


@pytest.mark.parametrize(
    "launched",
    [
        {
            "OMPI_COMM_WORLD_RANK": "3",
            "OMPI_COMM_WORLD_SIZE": "4",
            "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
        },
        {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    ],
)
def test_ranks_are_learnt_from_mpirun(
    launched: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    for name in names:
        # Set first, so that what the function sets is undone, too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    launcher.adopt_mpirun_variables()
    assert [os.environ[name] for name in names] == ["3", "4", "1", "2"]
    monkeypatch.setenv("RANK", "0")
    launcher.adopt_mpirun_variables()
    assert os.environ["RANK"] == "0", "torchrun's variables come first"


def test_without_a_launcher_a_program_says_how_to_start_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(SystemExit, match=r"torchrun .* or mpirun"):
        launcher.join()
