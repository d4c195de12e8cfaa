"""A link that stalls in the middle of a call, in the lab of slow links."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

import labs
from linklab import network, ranks
from linklab.topology import Lab

PROGRAM = Path(__file__).parent / "programs" / "stalled_link.py"
GIGABIT = 10**9
STALLED = 1000  # bits a second
TIMEOUT = 5.0  # of the group whose link stalls


@pytest.mark.parametrize("call", ["all_reduce", "exact all_reduce"])
def test_a_stalled_link_is_an_error_that_names_the_peer_in_time(call: str, tmp_path: Path) -> None:
    labs.skip_unless_possible()
    hosts, stalled = 3, 2
    states: list[str] = ["starting"]
    began = 0.0

    def all_are_there(name: str) -> bool:
        return all((tmp_path / name.format(rank)).exists() for rank in range(hosts))

    def meanwhile() -> None:
        nonlocal began
        if states[-1] == "starting" and all_are_there("ready{}"):
            time.sleep(0.3)  # Into the calls.
            network.set_host_rate(lab, stalled, STALLED)
            began = time.monotonic()
            states.append("stalled")
        elif states[-1] == "stalled" and all_are_there("outcome{}.json"):
            assert time.monotonic() - began < TIMEOUT + 15
            network.set_host_rate(lab, stalled, GIGABIT)
            (tmp_path / "restored").touch()
            states.append("restored")

    with network.laboratory(Lab(hosts, rate=GIGABIT)) as lab:
        command = [sys.executable, str(PROGRAM), str(tmp_path), call, str(TIMEOUT)]
        ranks.run(lab, command, timeout=120, echo=False, meanwhile=meanwhile)
    assert states == ["starting", "stalled", "restored"]
    for rank in range(hosts):
        outcome = json.loads((tmp_path / f"outcome{rank}.json").read_text())
        assert outcome["error"] is not None, f"rank {rank} noticed nothing"
        first = outcome["error"].splitlines()[0]
        assert outcome["seconds"] < TIMEOUT + 15
        assert re.search(r"\bagoq: all_reduce\b", first), first
        assert re.search(r"\b\d+ bytes\b", first), first
        peers = {int(peer) for peer in re.findall(r"\brank (\d)\b", first)} - {rank}
        assert peers, first
        if rank != stalled:
            assert stalled in peers, first
        assert json.loads((tmp_path / f"again{rank}").read_text()) is True
