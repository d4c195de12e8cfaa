"""torch's own DistributedTest suite, from the installed wheel, against a backend by name.

Run as a program: ``suite.py BACKEND RANKS SHARD SHARDS RESULTS``. Runs every SHARDS-th test, from
SHARD on, and writes {test: [outcome, seconds, message]} as JSON to RESULTS.

Many of the suite's decorators and bodies compare the backend's name with "gloo" and "nccl". It is
told "gloo", so that the backend has to pass what Gloo has to pass; only the groups are made with
the real name.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

# What torch/testing runs these with; ranks beyond 2 cores only make it slower.
ENVIRONMENT = {"BACKEND": "gloo", "INIT_METHOD": "env://", "GLOO_SOCKET_IFNAME": "lo"}


def load(backend: str, ranks: int) -> type[unittest.TestCase]:
    """Make the suite's test case for `backend`; sets environment variables the suite reads."""
    os.environ.update(ENVIRONMENT, WORLD_SIZE=str(ranks), TEMP_DIR=tempfile.mkdtemp("suite"))
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed import distributed_test as suite

    if backend != "gloo":
        import agoq_comm  # noqa: F401  # registers the backend
    torch.set_num_threads(1)
    init_process_group = dist.init_process_group

    class DistributedSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            # Forked, not spawned: the import of torch would be most of the suite's time.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        @classmethod
        def _run(cls, rank: int, test_name: str, *arguments: Any, **options: Any) -> None:
            if test_name == "test_get_backend":  # The one that asks for the name itself.
                suite.BACKEND = backend
            dist.init_process_group = lambda **given: init_process_group(
                **{**given, "backend": backend}
            )
            super()._run(rank, test_name, *arguments, **options)

    return DistributedSuite


class _Result(unittest.TestResult):
    """Collects outcomes by the test's short name."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, list[Any]] = {}

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self._start = time.monotonic()
        self.outcomes[self._name(test)] = ["passed", 0.0, ""]

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        self.outcomes[self._name(test)][1] = round(time.monotonic() - self._start, 2)

    @staticmethod
    def _name(test: unittest.TestCase) -> str:
        return test.id().rpartition(".")[2]

    def _note(self, test: unittest.TestCase, outcome: str, message: str) -> None:
        self.outcomes[self._name(test)] = [outcome, 0.0, message[-3000:]]

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._note(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure  # noqa: N815


def main() -> None:
    """Run one shard."""
    backend, ranks, shard, shards, results = sys.argv[1:6]
    case = load(backend, int(ranks))
    names = unittest.TestLoader().getTestCaseNames(case)
    chosen = sys.argv[6:] or names[int(shard) :: int(shards)]
    result = _Result()
    unittest.TestSuite(case(name) for name in chosen).run(result)
    Path(results).write_text(json.dumps(result.outcomes))


if __name__ == "__main__":
    main()
