"""Started by mpirun: agoq_comm.mpi over a real MPI communicator; prints one line a check."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from agoq_comm.mpi import Comm


def main() -> None:
    """Check each call against mpi4py's own, and say so on rank 0."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    comm = Comm(world)
    assert (comm.Get_rank(), comm.Get_size()) == (rank, size)
    rng = np.random.default_rng(rank)

    counted = rng.integers(-1000, 1000, size=6 * size, dtype=np.int64)
    for op in (MPI.SUM, MPI.MIN, MPI.MAX, MPI.BXOR):
        theirs, ours = np.empty_like(counted), np.empty_like(counted)
        world.Allreduce(counted, theirs, op=op)
        comm.Allreduce(counted, ours, op=op)
        assert (theirs == ours).all(), op
    in_place = counted.copy()
    comm.Allreduce(MPI.IN_PLACE, in_place, op=MPI.BXOR)
    assert (in_place == theirs).all()

    theirs, ours = np.empty(6, np.int64), np.empty(6, np.int64)
    world.Reduce_scatter(counted, theirs, op=MPI.SUM)
    comm.Reduce_scatter(counted, ours, op=MPI.SUM)
    assert (theirs == ours).all()

    theirs, ours = np.empty(6 * size * size, np.int64), np.empty(6 * size * size, np.int64)
    world.Allgather(counted, theirs)
    comm.Allgather(counted, ours)
    assert (theirs == ours).all()

    numbers = rng.standard_normal(100_000).astype(np.float32)
    exact, quantized = np.empty_like(numbers), np.empty_like(numbers)
    world.Allreduce(numbers, exact)
    comm.Allreduce(numbers, quantized)
    error = np.linalg.norm(quantized - exact) / np.linalg.norm(exact)
    assert 0 < error < 0.01, error
    assert comm.stats()["all_reduce"]["quantized_calls"] == 1
    if rank == 0:
        print(f"{size} ranks of {MPI.Get_library_version().split()[0]} agree")


if __name__ == "__main__":
    main()
