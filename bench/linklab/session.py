"""One start of a lab's ranks that measures many cases.

Starting ranks costs seconds, changing a link's rate milliseconds. So the ranks stay (`worker`),
and ask for another rate through files in a folder that both sides know: rank 0 writes a wish, and
the process that has made the lab, outside its namespaces, grants it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from linklab import network, peers, ranks
from linklab.cases import Case
from linklab.network import LabError
from linklab.topology import Lab

CASES, RESULTS = "cases.json", "results.jsonl"
_WISH, _GRANTED = "rate.json", "rate.granted"
_PATIENCE = 30.0  # seconds to wait for a rate


class Link:
    """The ranks' side: rates of all links. Every rank calls alike, and waits for the others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rate: Any = "as made"

    def set(self, rate: int | None) -> None:
        """Return when every port has this rate."""
        import torch.distributed as dist  # The other side does without torch.

        if rate != self._rate:
            if dist.get_rank() == 0:
                self._ask(rate)
            dist.barrier()
            self._rate = rate

    def _ask(self, rate: int | None) -> None:
        granted = self._folder / _GRANTED
        granted.unlink(missing_ok=True)
        whole = self._folder / "wish"
        whole.write_text(json.dumps(rate))
        whole.rename(self._folder / _WISH)
        deadline = time.monotonic() + _PATIENCE
        while not granted.exists():
            if time.monotonic() > deadline:
                raise LabError(f"nobody granted the rate {rate} within {_PATIENCE:g} s")
            time.sleep(0.01)


def _grant(lab: Lab, folder: Path) -> None:
    wish = folder / _WISH
    if wish.exists():
        network.set_rate(lab, json.loads(wish.read_text()))
        wish.unlink()
        (folder / _GRANTED).touch()


def run(
    lab: Lab,
    cases: Sequence[Case],
    seconds: float,
    timeout: float,
    mpi: peers.Mpi | None,
    on_result: Callable[[dict[str, Any]], None],
) -> None:
    """Measure cases in an existing lab, under torchrun's variables or an mpirun.

    Parameters
    ----------
    seconds
        How long to time one case, about; five rounds at least.
    timeout
        Seconds for all of them.
    on_result
        Called with each case's results as they come.

    Raises
    ------
    LabError
        Ranks failed or were late; what came before has been reported.
    """
    with tempfile.TemporaryDirectory(prefix="linklab") as directory:
        folder = Path(directory)
        wanted = {"seconds": seconds, "cases": [_for_launcher(c, mpi).as_dict() for c in cases]}
        (folder / CASES).write_text(json.dumps(wanted))
        results = folder / RESULTS
        results.touch()
        with results.open() as stream:
            unread = ""

            def meanwhile() -> None:
                nonlocal unread
                _grant(lab, folder)
                *lines, unread = (unread + stream.read()).split("\n")
                for line in lines:
                    on_result(json.loads(line))

            command = ["-m", "linklab.worker", str(folder)]
            if mpi is None:
                ranks.run(lab, [sys.executable, *command], timeout, False, meanwhile)
            else:
                peers.run(mpi, lab, command, timeout, meanwhile)
            meanwhile()


def _for_launcher(case: Case, mpi: peers.Mpi | None) -> Case:
    """Under an mpirun, compare with what only it can start."""
    if mpi is None:
        return case
    others = ("mpi", peers.ONECCL) if mpi.has_oneccl else ("mpi",)
    return replace(case, contenders=(*others, "exact", "agoq"))
