"""Starts a program's ranks on the hosts of a lab."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from linklab.network import LabError
from linklab.topology import Lab

_PORT = 29500  # free, since the namespace is new
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PAUSE = 0.05  # seconds between looks at the ranks


def variables(lab: Lab, rank: int) -> dict[str, str]:
    """Environment of a rank, as torchrun would set it, with the lab's interface."""
    return {
        **thread_counts(lab),
        **os.environ,
        **interface_variables(lab),
        **meeting_place(lab),
        "RANK": str(rank),
        "WORLD_SIZE": str(lab.ranks),
        "LOCAL_RANK": str(rank % lab.ranks_per_host),
        "LOCAL_WORLD_SIZE": str(lab.ranks_per_host),
    }


def thread_counts(lab: Lab) -> dict[str, str]:
    """A rank's share of this machine's cores, which every host of the lab takes for its own."""
    share = max(1, len(os.sched_getaffinity(0)) // lab.ranks)
    return {"OMP_NUM_THREADS": "1", "AGOQ_CODEC_THREADS": str(share)}


def meeting_place(lab: Lab) -> dict[str, str]:
    """Where torch's store is: on the first host."""
    return {"MASTER_ADDR": lab.address(0), "MASTER_PORT": str(_PORT)}


def interface_variables(lab: Lab) -> dict[str, str]:
    """Tell every library which interface carries its bytes."""
    names = ("AGOQ_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return dict.fromkeys(names, lab.interface)


def on_host(lab: Lab, host: int, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` on a host, as the process that is started.

    The host has a name of its own, since MPIs take ranks on hosts of one name for neighbours.
    """
    named = f'echo host{host} > /proc/sys/kernel/hostname; exec "$@"'
    inside = ["ip", "netns", "exec", lab.namespace(host)]
    return [*inside, "unshare", "--uts", "sh", "-c", named, "sh", *command]


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: Sequence[str], environment: dict[str, str], log: IO[str]
) -> subprocess.Popen[bytes]:
    """Start a process that ends when this one does, however that ends."""
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        preexec_fn=_die_with_parent,
    )


def run(
    lab: Lab,
    command: Sequence[str],
    timeout: float,
    echo: bool = True,
    meanwhile: Callable[[], None] = lambda: None,
) -> str:
    """Run `command` once for each rank; return what rank 0 printed.

    Parameters
    ----------
    timeout
        Seconds that all ranks together may take.
    echo
        Print what rank 0 prints.
    meanwhile
        Called often while they run.

    Raises
    ------
    LabError
        A rank failed, with what it printed, or the time was up. No rank is left running.
    """
    with tempfile.TemporaryDirectory(prefix="linklab") as directory:
        logs = [Path(directory) / f"rank{rank}.log" for rank in range(lab.ranks)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for rank, log in enumerate(logs):
                with log.open("w") as stream:
                    where = on_host(lab, lab.host_of(rank), command)
                    processes.append(start(where, variables(lab, rank), stream))
            names = [f"rank {rank}" for rank in range(lab.ranks)]
            wait(names, processes, logs, timeout, echo, meanwhile)
        finally:
            end(processes)
        return logs[0].read_text(errors="replace")


def wait(
    names: Sequence[str],
    processes: Sequence[subprocess.Popen[bytes]],
    logs: Sequence[Path],
    timeout: float,
    echo: bool,
    meanwhile: Callable[[], None],
) -> None:
    """Return when all have ended well; raise LabError as soon as one has not."""
    deadline = time.monotonic() + timeout
    with logs[0].open(errors="replace") as printed:
        while True:
            codes = [process.poll() for process in processes]
            meanwhile()
            if echo:
                sys.stdout.write(printed.read())
                sys.stdout.flush()
            for name, code, log in zip(names, codes, logs, strict=True):
                if code not in (None, 0):
                    tail = log.read_text(errors="replace")[-3000:]
                    raise LabError(f"{name} ended with status {code}:\n{tail}")
            if all(code == 0 for code in codes):
                return
            if time.monotonic() > deadline:
                late = [name for name, code in zip(names, codes, strict=True) if code is None]
                tail = logs[0].read_text(errors="replace")[-3000:]
                raise LabError(f"{', '.join(late)} did not end within {timeout:g} s:\n{tail}")
            time.sleep(_PAUSE)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs, by its id."""
    for process in processes:
        if process.poll() is None:
            process.kill()
    for process in processes:
        process.wait()
