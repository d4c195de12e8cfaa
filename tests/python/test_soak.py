"""Random collectives through torch.distributed, several groups and several in flight, bit for bit.

AGOQ_SOAK_CALLS makes it as long as one wants: `make soak` runs 10,000 calls a transport.
"""

from __future__ import annotations

import os

import pytest

from programs import soak
from ranks import launch, values

CALLS = int(os.environ.get("AGOQ_SOAK_CALLS", "300"))


@pytest.mark.timeout(120 + CALLS)
@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_every_result_is_the_contracts(transport: str) -> None:
    outcomes = launch(
        soak.soak, 3, timeout=60 + 0.5 * CALLS, transport=transport, calls=CALLS, seed=1
    )
    # Some calls are those of groups that a rank is not in.
    assert all(checked > CALLS / 2 for checked in values(outcomes))
