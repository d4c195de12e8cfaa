"""How torch.distributed comes to know the backend ``agoq``, and makes one for a group."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from agoq_comm import _C

_logger = logging.getLogger("agoq_comm")

# Device types that the backend is registered for; CUDA needs a GPU when it is used.
_DEVICES = ["cpu", "cuda"]

# Device types beside CUDA that have kernels: capsules of the DeviceSupport in csrc.
_kernels: dict[str, Any] = {}


def register() -> None:
    """Register the backend ``agoq`` with torch.distributed; importing `agoq_comm` does it.

    May be called any number of times. It is the entry point that torch 2.14 calls by itself when
    ``init_process_group("agoq")`` finds no such backend.
    """
    if "agoq" not in dist.Backend.backend_list:
        dist.Backend.register_backend("agoq", _create, extended_api=True, devices=_DEVICES)


def _create(site: Any, options: Any = None) -> _C.AgoqBackend:
    """Make this rank's backend of a new group, as torch asks for it."""
    if options is None:
        options = _C.Options()
    elif not isinstance(options, _C.Options):
        raise TypeError(
            f"pg_options of an agoq group must be agoq_comm.Options, not {type(options).__name__}."
        )
    # A copy, since torch writes the group's timeout and name into it.
    options = options.clone()
    options._timeout = site.timeout
    options.group_name = site.group_id
    options.global_ranks_in_group = list(site.global_ranks_in_group)
    return _make(site.store, site.group_rank, site.group_size, options)


def _make(store: Store, rank: int, size: int, options: _C.Options) -> _C.AgoqBackend:
    """Make a backend whose options already hold what torch says about the group."""
    identities, nodes = _C.handshake(
        store=PrefixStore("agoq/handshake", store), rank=rank, size=size, options=options
    )
    inner = _make_inner(store, rank, size, options)
    # Messages of our transports and the user's must never match: each gets a Gloo of its own.
    gloo = device_gloo = None
    if _C.carries_over_gloo(options.transport):
        gloo = _make_gloo(PrefixStore("agoq/transport", store), rank, size, options)
        if any(isinstance(inner[name], dist.ProcessGroupGloo) for name in inner if name != "cpu"):
            place = PrefixStore("agoq/device_transport", store)
            device_gloo = _make_gloo(place, rank, size, options)
    backend = _C.AgoqBackend(
        store=PrefixStore("agoq/mesh", store),
        rank=rank,
        size=size,
        options=options,
        inner=inner,
        gloo=gloo,
        device_gloo=device_gloo,
        identities=identities,
        nodes=nodes,
        make_backend=_make,
        devices=_kernels,
    )
    _logger.info("group %r, rank %d of %d: %s", options.group_name, rank, size, backend.describe())
    return backend


def _make_inner(store: Store, rank: int, size: int, options: _C.Options) -> dict[str, Any]:
    """Make the inner backend of each device type that this machine has."""
    inner = {"cpu": _make_gloo(PrefixStore("agoq/gloo", store), rank, size, options)}
    if torch.cuda.is_available():
        if dist.is_nccl_available() and options.device_transport == "auto":
            inner["cuda"] = _make_nccl(PrefixStore("agoq/nccl", store), rank, size, options)
        else:
            inner["cuda"] = _make_gloo(PrefixStore("agoq/cuda", store), rank, size, options)
    return inner


def _make_gloo(store: Store, rank: int, size: int, options: _C.Options) -> Any:
    timeout: timedelta = options._timeout
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timeout)
    gloo.options.group_name = options.group_name
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    return gloo


def _make_nccl(store: Store, rank: int, size: int, options: _C.Options) -> Any:
    nccl_options = dist.ProcessGroupNCCL.Options()
    nccl_options._timeout = options._timeout
    nccl_options.group_name = options.group_name
    nccl_options.global_ranks_in_group = options.global_ranks_in_group
    nccl = dist.ProcessGroupNCCL(store, rank, size, nccl_options)
    nccl._set_sequence_number_for_group()
    return nccl
