"""A rank of a lab whose links stall in the middle of a call; see test_linklab_faults.py.

Usage: ``python stalled_link.py FOLDER CALL TIMEOUT``, under the lab's launcher. Ranks tell what
they have come to, and learn what the lab has done, by files in FOLDER.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import agoq_comm

COUNT = 2**24  # fp32; 136 ms at 1 Gbit/s where encoded, and four times that where exact
LARGEST_WAIT = 60.0  # seconds


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + LARGEST_WAIT
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path.name} did not come")
        time.sleep(0.01)


def main() -> int:
    """Call until the link stalls, say how that ended, and call again in a new group."""
    folder, call, timeout = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    options: dict[str, Any] = {"quantize": ()} if call.startswith("exact") else {}
    dist.init_process_group("gloo", timeout=timedelta(seconds=LARGEST_WAIT))
    rank = dist.get_rank()
    group = dist.new_group(
        backend="agoq",
        pg_options=agoq_comm.Options(**options),
        timeout=timedelta(seconds=timeout),
    )
    buffer = torch.ones(COUNT)
    dist.all_reduce(buffer, group=group)
    (folder / f"ready{rank}").touch()
    begin = time.monotonic()
    outcome: dict[str, Any] = {"error": None}
    try:
        while time.monotonic() < begin + LARGEST_WAIT:
            begin_call = time.monotonic()
            dist.all_reduce(buffer.fill_(1), group=group)
    except RuntimeError as error:
        outcome = {"error": str(error), "seconds": time.monotonic() - begin_call}
    part = folder / f"part{rank}"
    part.write_text(json.dumps(outcome))
    part.rename(folder / f"outcome{rank}.json")
    _wait_for(folder / "restored")
    again = dist.new_group(backend="agoq", pg_options=agoq_comm.Options(**options))
    buffer.fill_(1)
    dist.all_reduce(buffer, group=again)
    # Encoding may err by half a step of 127 in each of three places.
    sum_is_right = bool(torch.allclose(buffer, torch.tensor(3.0), rtol=1.5 / 127))
    (folder / f"again{rank}").write_text(json.dumps(sum_is_right))
    dist.destroy_process_group(again)
    # The group that has failed, and Gloo's, end with the process.
    return 0


if __name__ == "__main__":
    sys.exit(main())
