"""Draws of stochastic rounding for what is encoded here and not in the backend."""

from __future__ import annotations

import weakref

import torch.distributed as dist

from agoq_comm._groups import _backend_of
from agoq_comm.codec import StochasticRounding

# The collectives of a group encode with stages 0 to 2 and gradients with 3; another stage keeps our
# draws apart from theirs.
_STAGE = 4

_calls: weakref.WeakKeyDictionary[dist.ProcessGroup, int] = weakref.WeakKeyDictionary()


def next_rounding(group: dist.ProcessGroup) -> StochasticRounding | None:
    """Return a new encoding's rounding, or None where the group rounds to nearest."""
    options = _backend_of(group).options
    if options.rounding != "stochastic":
        return None
    call = _calls.get(group, 0)
    _calls[group] = (call + 1) % 2**32
    return StochasticRounding(options.seed, call=call, rank=group.rank(), stage=_STAGE)
