"""Run a function on N ranks that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import agoq_comm


def run(
    size: int,
    function: Callable[[agoq_comm.Communicator], Any],
    options: agoq_comm.Options | None = None,
    timeout: float = 30,
    topology: Sequence[int] | None = None,
) -> list[Any]:
    """What `function` returns on each rank. Raises what the lowest rank that failed raised."""
    options = agoq_comm.Options() if options is None else options
    options._timeout = timedelta(seconds=timeout)
    group = agoq_comm.inproc_group(size, options, topology)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def body(communicator: agoq_comm.Communicator) -> None:
        try:
            results[communicator.rank] = function(communicator)
        except BaseException as error:
            errors[communicator.rank] = error

    threads = [threading.Thread(target=body, args=(one,), daemon=True) for one in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout + 10)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    for error in errors:
        if error is not None:
            raise error
    return results
