"""Shared settings of the Python tests."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# Examples are derived from the test's own name, so a failure in CI repeats at home.
settings.register_profile(
    "agoq", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("agoq")
