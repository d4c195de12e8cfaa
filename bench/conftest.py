"""What pytest-benchmark writes: statistics, without every single time and this machine's name."""

from __future__ import annotations

from typing import Any


def pytest_benchmark_update_json(config: Any, benchmarks: Any, output_json: dict[str, Any]) -> None:
    """Leave out what nobody reads again and what makes a record megabytes long."""
    del config, benchmarks
    output_json["machine_info"].pop("node", None)
    output_json.pop("commit_info", None)
    for benchmark in output_json["benchmarks"]:
        benchmark["stats"].pop("data", None)
