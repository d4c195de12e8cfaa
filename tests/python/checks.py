"""Many small checks in one launch: each is reported as a test of its own.

A program module makes a `Checks` and decorates functions of one argument, the `Rank`. All ranks run
all checks in order; test modules parametrize over the names and read the outcome of each.
"""

from __future__ import annotations

import functools
import importlib
import json
import traceback
from collections.abc import Callable
from typing import Any

from ranks import BACKEND, Rank, launch

Check = Callable[[Rank], None]


class Checks:
    """Checks of one program, in order of definition."""

    def __init__(self) -> None:
        self._checks: dict[str, tuple[Check, int]] = {}

    def __call__(self, check: Check) -> Check:
        """Decorator that adds a check."""
        self._checks[check.__name__] = (check, 1)
        return check

    def from_ranks(self, size: int) -> Callable[[Check], Check]:
        """Decorator that adds a check which needs at least `size` ranks."""

        def add(check: Check) -> Check:
            self._checks[check.__name__] = (check, size)
            return check

        return add

    def names(self, size: int) -> list[str]:
        """Names of the checks for a world of `size` ranks."""
        return [name for name, (_, least) in self._checks.items() if size >= least]

    def cases(self, *sizes: int) -> list[tuple[int, str]]:
        """Arguments for pytest.mark.parametrize("size,name", ...)."""
        return [(size, name) for size in sizes for name in self.names(size)]

    def run(self, me: Rank) -> None:
        """Run all on this rank, noting the outcome of each before the next starts."""
        with open(me.directory / f"checks{me.rank}.jsonl", "w") as log:
            for name in self.names(me.size):
                print("check", name, flush=True)
                error = None
                try:
                    self._checks[name][0](me)
                except Exception:
                    error = traceback.format_exc()
                log.write(json.dumps([name, error]) + "\n")
                log.flush()


def run_program(me: Rank) -> dict[str, str | None]:
    """Run all checks of the module that the launch names; return their errors."""
    import torch.distributed as dist

    module = importlib.import_module(me.arguments["program"])
    me.init_process_group(**getattr(module, "INIT", {}))
    module.checks.run(me)
    dist.destroy_process_group()
    lines = (me.directory / f"checks{me.rank}.jsonl").read_text().splitlines()
    return dict(json.loads(line) for line in lines)


@functools.cache
def _launched(program: str, size: int, timeout: float) -> list[Any]:
    return launch(run_program, size, timeout=timeout, program=program)


def expect_ok(program: str, size: int, name: str, timeout: float = 120) -> None:
    """Assert that the check passed on every rank; launches the program at its first use."""
    outcomes = _launched(program, size, timeout)
    problems = []
    for outcome in outcomes:
        if outcome.value is None:
            state = "timed out" if outcome.exitcode is None else f"exit {outcome.exitcode}"
            problems.append(f"rank {outcome.rank} did not finish ({state}):\n{outcome.output}")
        elif outcome.value[name] is not None:
            problems.append(f"rank {outcome.rank}:\n{outcome.value[name]}")
    assert not problems, f"{program}.{name} on {size} ranks, {BACKEND}\n" + "\n".join(problems)[
        -6000:
    ]
