#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "agoqcomm/mpi.h"
#include "transport/mesh/arguments.h"
#include "transport/mesh/mesh_transport.h"
#include "transport/mpi/mpi_link.h"
#include "transport/mpi/orphans.h"

namespace agoq {

std::unique_ptr<Transport> make_mpi_transport(int communicator, const TransportConfig& config) {
  if (!mpi_is_running()) {
    throw Error(ErrorCode::kInvalidArgument,
                "MPI is not running: make the mpi transport between MPI_Init_thread and "
                "MPI_Finalize, which are the program's own calls");
  }
  check_arguments(0, 1, config);
  sweep_orphans();
  const auto group =
      std::make_shared<const MpiGroup>(MPI_Comm_f2c(communicator), Clock::now() + config.timeout);
  std::vector<std::unique_ptr<Link>> links(static_cast<std::size_t>(group->size()));
  for (const int peer : peers_of(group->rank(), group->size())) {
    links[static_cast<std::size_t>(peer)] = std::make_unique<MpiLink>(group, peer);
  }
  return std::make_unique<MeshTransport>("mpi", group->rank(), std::move(links),
                                         std::make_unique<HeapSendMemory>(config.send_bytes),
                                         config.early_bytes);
}

}  // namespace agoq
