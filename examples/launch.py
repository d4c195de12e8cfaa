"""Starts a script of this folder's neighbours under torchrun on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def torchrun(ranks: int, script: str, *arguments: str) -> None:
    """Run ``script`` (relative to the repository) with `ranks` processes.

    Raises
    ------
    subprocess.CalledProcessError
        The script failed; its output has said why.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(ROOT / script), *arguments]
    # torchrun says the same by itself, with a warning; the scripts raise it where cores abound.
    environment = {"OMP_NUM_THREADS": "1"} | os.environ
    subprocess.run(command, check=True, env=environment)
