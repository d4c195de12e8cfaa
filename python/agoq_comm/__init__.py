"""Quantized collectives for torch.distributed: about one byte an element on the wire.

Importing it registers the backend ``agoq``::

    import agoq_comm
    import torch.distributed as dist

    dist.init_process_group("agoq")

All-reduce and reduce-scatter of floating-point tensors then travel as 8-bit integers with a scale
for every block; whatever else a program calls is served exactly. `Options` chooses, `stats` counts
and `describe` tells.
"""

from __future__ import annotations

import logging
from pathlib import Path

from agoq_comm import _torch_version

_torch_version.check()

from agoq_comm import _C  # noqa: E402 - after the check, which explains what would fail here
from agoq_comm._C import Options  # noqa: E402
from agoq_comm._groups import describe, reset_stats, stats  # noqa: E402
from agoq_comm._registration import register  # noqa: E402
from agoq_comm.codec import (  # noqa: E402
    Encoded,
    StochasticRounding,
    decode,
    decode_accumulate,
    encode,
    reduce_encode,
    sum_decode,
    sum_encode,
)
from agoq_comm.communicator import Communicator, inproc_group  # noqa: E402

__version__: str = _C.version

__all__ = [
    "Communicator",
    "Encoded",
    "Options",
    "StochasticRounding",
    "cmake_prefix_path",
    "decode",
    "decode_accumulate",
    "describe",
    "encode",
    "inproc_group",
    "reduce_encode",
    "register",
    "reset_stats",
    "stats",
    "sum_decode",
    "sum_encode",
]

# A library leaves it to the program whether and where its messages go.
logging.getLogger("agoq_comm").addHandler(logging.NullHandler())


def cmake_prefix_path() -> str:
    """Return the folder to put into CMAKE_PREFIX_PATH for ``find_package(agoqcomm)`` in C++."""
    return str(Path(__file__).parent)


register()
