// Ranks that mpirun has started: MPI tells them where rank 0's store is.
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <iostream>

#include "agoqcomm/mpi.h"
#include "osu/ranks.h"

namespace agoq::bench::osu {
namespace {

bool share_a_host(int size) {
  MPI_Comm host = MPI_COMM_NULL;
  int beside = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &beside);
  MPI_Comm_free(&host);
  return beside == size;
}

Place find_place() {
  Place place;
  MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place.size);
  std::array<char, 256> host{};
  if (share_a_host(place.size)) {
    std::strcpy(host.data(), "127.0.0.1");
  } else {
    ::gethostname(host.data(), host.size() - 1);
  }
  if (place.rank == 0) place.port = free_port();
  MPI_Bcast(host.data(), static_cast<int>(host.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  MPI_Bcast(&place.port, 1, MPI_UINT16_T, 0, MPI_COMM_WORLD);
  place.host = host.data();
  return place;
}

}  // namespace

int run_under_mpirun(const std::function<int(const Place&, const MakeTransport&)>& body) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  try {
    const int status =
        body(find_place(), [] { return make_mpi_transport(MPI_Comm_c2f(MPI_COMM_WORLD)); });
    MPI_Finalize();
    return status;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    // The others may wait for this rank in MPI, which knows no other way to tell them.
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
  }
}

}  // namespace agoq::bench::osu
