"""What a group of the backend ``agoq`` says about itself."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from agoq_comm import _C


def _backend_of(group: dist.ProcessGroup | None) -> _C.AgoqBackend:
    if not dist.is_initialized():
        raise RuntimeError(
            'agoq_comm: there is no group yet; call torch.distributed.init_process_group("agoq").'
        )
    chosen = dist.group.WORLD if group is None else group
    if not isinstance(chosen, dist.ProcessGroup):
        raise TypeError(
            f"agoq_comm: group is {chosen!r}; this rank is no member of it, or it is no group."
        )
    for device in chosen._device_types:
        backend = chosen._get_backend(torch.device(device))
        if isinstance(backend, _C.AgoqBackend):
            return backend
    raise ValueError(
        f"agoq_comm: the group's backend is {dist.get_backend(chosen)!r}, not 'agoq'; pass a group "
        'made with backend="agoq".'
    )


def stats(group: dist.ProcessGroup | None = None) -> dict[str, dict[str, Any]]:
    """Return the counters of this rank since the group began or `reset_stats` was called.

    Parameters
    ----------
    group : ProcessGroup, optional
        A group of the backend ``agoq``; by default the world.

    Returns
    -------
    dict
        For each operation that was called (``"all_reduce"``, ``"broadcast"``, ...) a dict of
        ``calls``, ``quantized_calls``, ``exact_calls``; ``exact_by_reason``, which says why calls
        were exact and how often; ``elements``; ``wire_bytes``, which this rank sent,
        ``wire_bytes_between_nodes``, those of them that went to another node, and ``exact_bytes``,
        which it would have sent in the caller's type; and the wall time of the thread that ran the
        calls: ``encode_seconds``, ``sum_seconds``, ``decode_seconds``, ``wait_seconds``,
        ``total_seconds``. What an inner backend such as Gloo served is not told apart by node.
    """
    return _backend_of(group).stats()


def reset_stats(group: dist.ProcessGroup | None = None) -> None:
    """Set all counters of `stats` to zero, on this rank."""
    _backend_of(group).reset_stats()


def describe(group: dist.ProcessGroup | None = None) -> str:
    """Return a few lines about a group: ranks, transport, format, topology, algorithm."""
    return _backend_of(group).describe()
