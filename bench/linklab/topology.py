"""Which hosts there are, how they are joined, and how fast."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass, field

INTERFACE = "e0"  # of every host that has a link
LOOPBACK = "lo"
PREFIX = "linklab"
_SUBNET = "10.77.0"
_GIGABIT = 10**9


@dataclass(frozen=True)
class Lab:
    """Hosts of equally many ranks; one stands alone, two are joined directly, more by a bridge.

    Attributes
    ----------
    hosts, ranks_per_host
        Ranks are numbered host by host.
    rate
        Bits a second of each host's port, each way; None leaves it unshaped.
    owner
        Process id in the names of the namespaces, so that two runs do not collide.
    """

    hosts: int
    ranks_per_host: int = 1
    rate: int | None = None
    owner: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= 200 or self.ranks_per_host < 1:
            raise ValueError("a lab has 1 to 200 hosts of at least one rank each")

    @property
    def ranks(self) -> int:
        """Ranks on all hosts."""
        return self.hosts * self.ranks_per_host

    @property
    def interface(self) -> str:
        """What a host's ranks send over."""
        return INTERFACE if self.hosts > 1 else LOOPBACK

    def namespace(self, host: int) -> str:
        """Name of a host's network namespace."""
        return f"{PREFIX}-{self.owner}-h{host}"

    @property
    def switch(self) -> str:
        """Name of the namespace of the bridge."""
        return f"{PREFIX}-{self.owner}-switch"

    @property
    def has_switch(self) -> bool:
        """Whether a bridge joins the hosts."""
        return self.hosts > 2

    @property
    def namespaces(self) -> list[str]:
        """All namespaces that the lab needs."""
        hosts = [self.namespace(host) for host in range(self.hosts)]
        return [*hosts, self.switch] if self.has_switch else hosts

    def address(self, host: int) -> str:
        """IPv4 address of a host."""
        return f"{_SUBNET}.{host + 1}"

    def host_of(self, rank: int) -> int:
        """Host that a rank runs on."""
        return rank // self.ranks_per_host


def layout_name(hosts: int, ranks_per_host: int) -> str:
    """Return a layout for people: 4 hosts, or 2 hosts x 2 ranks."""
    shape = "1 host" if hosts == 1 else f"{hosts} hosts"
    return shape if ranks_per_host == 1 else f"{shape} x {ranks_per_host} ranks"


def owner_of(namespace: str) -> int | None:
    """Process id in a namespace's name, or None if it is none of a lab."""
    match = re.fullmatch(rf"{PREFIX}-(\d+)-(?:h\d+|switch)", namespace)
    return int(match[1]) if match else None


def parse_rate(text: str) -> int | None:
    """Read ``2.5``, ``2.5gbit`` (gigabits a second), or ``none``."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:g|gbit)?", text, re.IGNORECASE)
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; write 2.5, 10gbit or none")
    return round(float(match[1]) * _GIGABIT)


def parse_layout(text: str) -> tuple[int, int]:
    """Read ``2x1``: hosts, and ranks on each."""
    match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no layout; write HOSTSxRANKS, as 2x1")
    return int(match[1]), int(match[2])


def rate_name(rate: int | None) -> str:
    """Return the rate for people: 2.5 Gbit/s."""
    return "unshaped" if rate is None else f"{rate / _GIGABIT:g} Gbit/s"


def burst_bytes(rate: int) -> int:
    """Return what a port may send at once after a pause.

    A large bucket gives each operation so many bytes for free and flatters whoever sends less; a
    small one does not reach the rate.
    """
    return 128 * 1024 if rate <= 2.5 * _GIGABIT else 256 * 1024
