"""One of torch's stores among the ranks of an mpi4py communicator."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

_SIOCGIFADDR = 0x8915  # linux/sockios.h


def make_store(comm: Any, timeout: timedelta = timedelta(minutes=5)) -> TCPStore:
    """Let rank 0 serve a store and all others connect to it; a collective call.

    The store is good for `torch.distributed.init_process_group`, too, which then needs no
    MASTER_ADDR and no launcher of torch's.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Whose ranks share the store. Its lower-case ``bcast`` and ``allgather`` are used.
    timeout : datetime.timedelta
        Of connecting, and the store's own.

    Returns
    -------
    torch.distributed.TCPStore
        Rank 0's must live as long as another rank uses its own.

    Raises
    ------
    RuntimeError
        On every rank: rank 0 could not serve a store, and why.
    """
    one_host = len(set(comm.allgather(_host_identity()))) == 1
    store, where, trouble = None, ("", 0), ""
    if comm.Get_rank() == 0:
        # An error must reach the other ranks, which would wait for the address for ever.
        try:
            address = _own_address(one_host)
            store = TCPStore(address, 0, is_master=True, wait_for_workers=False, timeout=timeout)
            where = (address, store.port)
        except (OSError, RuntimeError) as error:
            trouble = str(error)
    where, trouble = comm.bcast((where, trouble), root=0)
    if trouble:
        raise RuntimeError(
            f"agoq_comm: rank 0 cannot serve the store that the ranks meet at: {trouble}"
        )
    if store is None:
        store = TCPStore(where[0], where[1], is_master=False, timeout=timeout)
    return store


def _host_identity() -> str:
    """Equal on two ranks if one reaches the other at 127.0.0.1."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"


def _own_address(one_host: bool) -> str:
    interface = os.environ.get("AGOQ_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME")
    if interface:
        return _address_of_interface(interface)
    return "127.0.0.1" if one_host else socket.gethostname()


def _address_of_interface(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            raise OSError(
                f"interface {name!r} of AGOQ_SOCKET_IFNAME or GLOO_SOCKET_IFNAME has no IPv4 "
                f"address: {error.strerror}"
            ) from None
    # struct ifreq: 16 bytes of name, then a sockaddr_in with the address at its byte 4.
    return socket.inet_ntoa(answer[20:24])
