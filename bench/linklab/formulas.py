"""Bytes that leave a host in one collective call, by algorithm.

p ranks on m hosts, g on each, and a message of N bytes as it travels: the whole input of an
all-reduce or reduce-scatter, the whole output of an all-gather. A reduce-scatter or an all-gather
passes once over the links, an all-reduce twice.
"""

from __future__ import annotations

PASSES = {"allreduce": 2, "reduce_scatter": 1, "allgather": 1}

# Ethernet, IPv4 and TCP with time stamps: what a frame holds beside payload. The counters of a veth
# see a large send as one frame, so that frames and bytes together tell the payload.
FRAME_OVERHEAD = 14 + 20 + 32

# Block format int8/128/bf16: one byte an element and a two-byte scale for every 128.
_ENCODED_BYTES_PER_ELEMENT = 1 + 2 / 128

# Contenders whose messages are encoded.
_QUANTIZED = ("agoq", "flat")

# Smaller exact calls do not take two levels.
_LEAST_EXACT_BYTES = 64 << 10


def flat(hosts: int, ranks_per_host: int, operation: str, message: float) -> float:
    """Every chunk straight to its owner: g ranks send (m-1)g chunks of N/p bytes each."""
    return PASSES[operation] * ranks_per_host * (hosts - 1) / hosts * message


def two_level(hosts: int, operation: str, message: float) -> float:
    """First inside the host, then between the hosts: as if each host were one rank."""
    return PASSES[operation] * (hosts - 1) / hosts * message


def ring(ranks: int, operation: str, message: float) -> float:
    """A ring in rank order leaves each host once: (p-1) chunks of N/p bytes."""
    return PASSES[operation] * (ranks - 1) / ranks * message


def encoded(message: float, itemsize: int) -> float:
    """Bytes of a message after encoding."""
    return message / itemsize * _ENCODED_BYTES_PER_ELEMENT


def payload(sent_bytes: int, sent_frames: int) -> int:
    """Return what a port's counters say without headers; acknowledgements alone count nothing."""
    return sent_bytes - FRAME_OVERHEAD * sent_frames


def at_least(hosts: int, operation: str, contender: str, size: int, itemsize: int) -> float:
    """Bytes that must leave each host a call, whatever the algorithm, unless some go around."""
    message = encoded(size, itemsize) if contender in _QUANTIZED else size
    return two_level(hosts, operation, message)


def expected(
    hosts: int, ranks_per_host: int, operation: str, contender: str, size: int, itemsize: int
) -> float | None:
    """Bytes that must leave each host a call; None where nobody states the algorithm."""
    if contender not in (*_QUANTIZED, "exact"):
        return None
    message = encoded(size, itemsize) if contender in _QUANTIZED else size
    has_levels = contender == "agoq" or (contender == "exact" and size >= _LEAST_EXACT_BYTES)
    if has_levels and ranks_per_host > 1:
        return two_level(hosts, operation, message)
    return flat(hosts, ranks_per_host, operation, message)
