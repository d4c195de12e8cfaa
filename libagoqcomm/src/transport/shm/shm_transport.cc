#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "agoqcomm/shm.h"
#include "transport/mesh/arguments.h"
#include "transport/mesh/host_identity.h"
#include "transport/mesh/mesh_transport.h"
#include "transport/shm/shm_mesh.h"

namespace agoq {

std::unique_ptr<Transport> make_shm_transport(Store& store, int rank, int size,
                                              const TransportConfig& config) {
  check_arguments(rank, size, config);
  const auto deadline = Clock::now() + config.timeout;
  const auto hosts =
      exchange_host_identities(store, config.name + "/shm/host", rank, size, deadline);
  for (int other = 1; other < size; ++other) {
    if (hosts[static_cast<std::size_t>(other)] == hosts[0]) continue;
    throw Error(ErrorCode::kUnsupported, "ranks 0 and " + std::to_string(other) +
                                             " share no host or network namespace, and so no "
                                             "memory; use the auto transport");
  }
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<Link>> links(members.size());
  std::optional<std::string> problem;
  const auto arena = connect_shm_links(store, config, rank, members, deadline, links, problem);
  if (problem) {
    throw Error(ErrorCode::kUnsupported,
                "the ranks cannot share memory: " + *problem + "; use the tcp transport");
  }
  return std::make_unique<MeshTransport>(
      "shm", rank, std::move(links), std::make_unique<ArenaSendMemory>(arena, config.send_bytes),
      config.early_bytes);
}

}  // namespace agoq
