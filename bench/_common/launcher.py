"""How a program learns its rank: from torchrun, or from mpirun."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

# torchrun's variables, and what the launchers of the MPIs call the same.
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_MPIRUN = (
    # Open MPI
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    # Hydra: MPICH, Intel MPI, MVAPICH
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)


def adopt_mpirun_variables() -> None:
    """Set torchrun's variables from mpirun's where torchrun has set none."""
    if "RANK" in os.environ:
        return
    for names in _MPIRUN:
        if names[0] in os.environ and names[1] in os.environ:
            for ours, theirs in zip(_TORCHRUN, names, strict=True):
                if theirs in os.environ:
                    os.environ[ours] = os.environ[theirs]
            return


def join() -> None:
    """Make the default group, of Gloo, from what either launcher says."""
    if "RANK" not in os.environ:
        raise SystemExit(
            "start this program with a launcher: torchrun --standalone --nproc-per-node 2 PROGRAM, "
            "or mpirun -n 2 python PROGRAM"
        )
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        dist.init_process_group(backend="gloo")
        return
    from agoq_comm.mpi import make_store

    world = mpi_world(
        "the ranks to meet, unless MASTER_ADDR and MASTER_PORT name a place on rank 0's host"
    )
    dist.init_process_group(
        backend="gloo", store=make_store(world), rank=world.Get_rank(), world_size=world.Get_size()
    )


def mpi_world(purpose: str) -> Any:
    """Return MPI.COMM_WORLD, or say what is missing for `purpose`."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise SystemExit(f"mpi4py is needed for {purpose}; it cannot be loaded: {error}") from None
    ranks = int(os.environ["WORLD_SIZE"])
    if MPI.COMM_WORLD.Get_size() != ranks:
        raise SystemExit(
            f"MPI knows {MPI.COMM_WORLD.Get_size()} rank(s) of {ranks}: start with mpirun (of the "
            "MPI that mpi4py was built for), not torchrun"
        )
    return MPI.COMM_WORLD
