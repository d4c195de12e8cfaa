"""Run a function on N ranks, each a process of its own, with a hard time limit.

Ranks are forked from a server process that has torch imported already: a launch costs a fraction of
a second instead of the import on each rank.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

BACKEND = os.environ.get("AGOQ_TEST_BACKEND", "agoq")
HERE = Path(__file__).parent

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch.distributed", "numpy", "agoq_comm"])


@dataclass
class Rank:
    """What a rank's function is told."""

    rank: int
    size: int
    directory: Path
    backend: str = BACKEND
    arguments: dict[str, Any] = field(default_factory=dict)

    def init_process_group(self, timeout: float = 30, **options: Any) -> None:
        """Join the default group, through a file in the launch's own directory."""
        import torch.distributed as dist

        dist.init_process_group(
            self.backend,
            init_method=f"file://{self.directory}/store",
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=timeout),
            **options,
        )


@dataclass
class Outcome:
    """How one rank ended."""

    rank: int
    exitcode: int | None
    output: str
    value: Any = None
    seconds: float = 0.0


def _rank_main(module: str, function: str, me: Rank, environment: dict[str, str]) -> None:
    """Body of a rank's process."""
    log = os.open(me.directory / f"rank{me.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(environment)
    os.environ.update(RANK=str(me.rank), WORLD_SIZE=str(me.size), LOCAL_RANK=str(me.rank))
    import torch

    torch.set_num_threads(1)
    try:
        value = getattr(importlib.import_module(module), function)(me)
        (me.directory / f"rank{me.rank}.json").write_text(json.dumps(value))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _outcome(me: Rank, process: Any, started: float) -> Outcome:
    log = me.directory / f"rank{me.rank}.log"
    result = me.directory / f"rank{me.rank}.json"
    return Outcome(
        me.rank,
        process.exitcode,
        log.read_text(errors="replace") if log.exists() else "",
        json.loads(result.read_text()) if result.exists() else None,
        time.monotonic() - started,
    )


def launch(
    function: Callable[[Rank], Any],
    size: int,
    *,
    timeout: float = 60,
    environment: dict[str, str] | None = None,
    backend: str = BACKEND,
    **arguments: Any,
) -> list[Outcome]:
    """Run `function` on `size` ranks and collect what each returned (as JSON) and printed.

    A rank still running after `timeout` seconds is killed, by its pid, and has exitcode None.
    """
    variables = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **(environment or {})}
    with tempfile.TemporaryDirectory(prefix="ranks") as directory:
        ranks = [Rank(r, size, Path(directory), backend, arguments) for r in range(size)]
        started = time.monotonic()
        processes = [
            _context.Process(
                target=_rank_main, args=(function.__module__, function.__name__, me, variables)
            )
            for me in ranks
        ]
        for process in processes:
            process.start()
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < size and time.monotonic() - started < timeout:
            for me, process in zip(ranks, processes, strict=True):
                if me.rank not in outcomes and process.exitcode is not None:
                    outcomes[me.rank] = _outcome(me, process, started)
            time.sleep(0.01)
        for me, process in zip(ranks, processes, strict=True):
            if me.rank not in outcomes:
                outcomes[me.rank] = _outcome(me, process, started)
                process.kill()
            process.join()
        return [outcomes[r] for r in range(size)]


def values(outcomes: list[Outcome]) -> list[Any]:
    """What the ranks returned; an assertion with their output if one of them failed."""
    failed = [o for o in outcomes if o.exitcode != 0]
    report = "\n".join(
        f"rank {o.rank}: {'timed out' if o.exitcode is None else f'exit {o.exitcode}'}\n"
        f"{o.output[-4000:]}"
        for o in failed
    )
    assert not failed, report
    return [o.value for o in outcomes]
