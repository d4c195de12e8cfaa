"""Makes bench/linklab importable, and says whether a lab can be made here."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from linklab import network  # noqa: E402
from linklab.topology import Lab  # noqa: E402


def skip_unless_possible() -> None:
    """Skip the test, with the reason, where namespaces or shaped links cannot be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need root and iproute2")
    probe = Lab(2, rate=10**9)
    try:
        network.create(probe)
    except network.LabError as error:
        pytest.skip(f"this machine makes no namespaces or shaped links: {error}")
    finally:
        network.remove(probe.namespaces)
