// Ranks of a test of transports as the processes that mpirun has started. All run the same tests in
// the same order, and each runs the body of its own rank.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "agoqcomm/mpi.h"
#include "transport_group.h"

namespace agoq::test {

/// As in rank_threads.h.
struct Member {
  std::unique_ptr<Transport> transport;
  std::function<void()> meet;
};

inline int ranks_at_hand() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Runs body on the first `size` ranks of the world, or on all where it has fewer.
inline void run_members(Kind, int size, const std::function<void(Member&)>& body,
                        const TransportConfig& config = {}) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const bool takes_part = rank < std::min(size, ranks_at_hand());
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, takes_part ? 0 : MPI_UNDEFINED, rank, &ranks);
  if (takes_part) {
    Member member{make_mpi_transport(MPI_Comm_c2f(ranks), config), [ranks] { MPI_Barrier(ranks); }};
    body(member);
    MPI_Barrier(ranks);
    member.transport.reset();
    MPI_Comm_free(&ranks);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace agoq::test
