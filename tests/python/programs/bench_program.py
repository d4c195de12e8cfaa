"""One rank of a program in bench/, started without a launcher."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from ranks import Rank

BENCH = Path(__file__).resolve().parents[3] / "bench"


def run(me: Rank) -> int:
    """Run the program named in the arguments, with its flags; return its exit status."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(me.arguments["port"]))
    sys.path.insert(0, str(BENCH))
    sys.argv = [me.arguments["program"], *me.arguments["flags"]]
    status: int = importlib.import_module(me.arguments["program"]).main()
    return status
