#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "agoqcomm/auto.h"
#include "transport/mesh/arguments.h"
#include "transport/mesh/host_identity.h"
#include "transport/mesh/mesh_transport.h"
#include "transport/shm/shm_mesh.h"
#include "transport/tcp/tcp_mesh.h"

namespace agoq {
namespace {

std::vector<int> ranks_of_host(const std::vector<std::string>& hosts, int rank) {
  std::vector<int> ranks;
  for (std::size_t other = 0; other < hosts.size(); ++other) {
    if (hosts[other] == hosts[static_cast<std::size_t>(rank)]) {
      ranks.push_back(static_cast<int>(other));
    }
  }
  return ranks;
}

}  // namespace

std::unique_ptr<Transport> make_auto_transport(Store& store, int rank, int size,
                                               const TransportConfig& config) {
  check_arguments(rank, size, config);
  const auto deadline = Clock::now() + config.timeout;
  const auto hosts =
      exchange_host_identities(store, config.name + "/auto/host", rank, size, deadline);
  std::vector<std::unique_ptr<Link>> links(static_cast<std::size_t>(size));

  // All ranks of a host come to the same answer, so both ends of a link are of one kind.
  std::shared_ptr<Arena> arena;
  const std::vector<int> members = ranks_of_host(hosts, rank);
  if (members.size() > 1) {
    std::optional<std::string> problem;  // The reason is tcp's slower way; nothing is wrong.
    arena = connect_shm_links(store, config, rank, members, deadline, links, problem);
  }
  std::vector<int> far = peers_of(rank, size);
  std::erase_if(far, [&](int peer) { return links[static_cast<std::size_t>(peer)] != nullptr; });
  connect_tcp_links(store, config, rank, far, hosts, deadline, links);

  std::unique_ptr<SendMemory> memory;
  if (arena != nullptr) {
    memory = std::make_unique<ArenaSendMemory>(arena, config.send_bytes);
  } else {
    memory = std::make_unique<HeapSendMemory>(config.send_bytes);
  }
  return std::make_unique<MeshTransport>("auto", rank, std::move(links), std::move(memory),
                                         config.early_bytes);
}

}  // namespace agoq
