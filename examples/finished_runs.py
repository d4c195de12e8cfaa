"""Results of runs that a study has made before, so that one that was stopped goes on where it was.

A run is known by everything that it is made with: all fields of its configuration and the versions
of this library and torch. A change to the code that leaves the version as it is goes unnoticed;
delete the folder then.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch

import agoq_comm

Run = dict[str, Any]


def _identity(config: dict[str, Any]) -> dict[str, Any]:
    """All that tells runs apart, as JSON gives it back."""
    versions = {"agoq_comm": agoq_comm.__version__, "torch": torch.__version__}
    return json.loads(json.dumps(versions | {"config": config}, sort_keys=True))


def _path(folder: Path, config: dict[str, Any]) -> Path:
    text = json.dumps(_identity(config), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return folder / f"{config['variant']}-{config['seed']}-{digest}.json"


def read(folder: Path, config: dict[str, Any]) -> Run | None:
    """Return the result of the run with this configuration, if it is made."""
    try:
        record = json.loads(_path(folder, config).read_text())
    except FileNotFoundError:
        return None
    return record["run"] if record["made_with"] == _identity(config) else None


def write(folder: Path, config: dict[str, Any], run: Run) -> None:
    """Keep a result; whoever reads meanwhile finds all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, config)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps({"made_with": _identity(config), "run": run}))
    unfinished.replace(path)
