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

from ranks import BACKEND, Outcome, Rank, launch

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
        return [(size, name) for size in sizes for name in [*self.names(size), ENDS]]

    def run(self, me: Rank) -> None:
        """Run all on this rank, printing the outcome of each before the next starts."""
        for name in self.names(me.size):
            error = None
            try:
                self._checks[name][0](me)
            except Exception:
                error = traceback.format_exc()
            print(MARK + json.dumps([name, error]), flush=True)


MARK = "check outcome: "
# Not a check: that the program came to its end, destroyed its group and exited cleanly.
ENDS = "ends_cleanly"


def run_program(me: Rank) -> None:
    """Run all checks of the module that the launch names."""
    import torch.distributed as dist

    module = importlib.import_module(me.arguments["program"])
    if hasattr(module, "prepare"):
        module.prepare(me)
    me.init_process_group(**getattr(module, "INIT", {}))
    module.checks.run(me)
    dist.destroy_process_group()


@functools.cache
def _launched(program: str, size: int, timeout: float) -> list[tuple[Outcome, dict[str, Any]]]:
    outcomes = launch(run_program, size, timeout=timeout, program=program)
    return [(outcome, _errors(outcome)) for outcome in outcomes]


def _errors(outcome: Outcome) -> dict[str, str | None]:
    lines = outcome.output.splitlines()
    return dict(json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK))


def expect_ok(program: str, size: int, name: str, timeout: float = 150) -> None:
    """Assert that the check passed on every rank; launches the program at its first use."""
    problems = []
    for outcome, errors in _launched(program, size, timeout):
        if name == ENDS:
            error = None if outcome.exitcode == 0 else "did not end cleanly"
        else:
            error = errors.get(name, "did not finish this check")
        if error is not None:
            tail = "" if outcome.exitcode == 0 else outcome.output[-3000:]
            problems.append(f"rank {outcome.rank}, exit {outcome.exitcode}: {error}\n{tail}")
    assert not problems, f"{program}.{name}, {size} ranks, {BACKEND}\n" + "\n".join(problems)
