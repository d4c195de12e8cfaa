#include <string>
#include <utility>
#include <vector>

#include "agoqcomm/tcp.h"
#include "transport/mesh/arguments.h"
#include "transport/mesh/host_identity.h"
#include "transport/mesh/mesh_transport.h"
#include "transport/tcp/tcp_mesh.h"

namespace agoq {

std::unique_ptr<Transport> make_tcp_transport(Store& store, int rank, int size,
                                              const TransportConfig& config) {
  check_arguments(rank, size, config);
  const auto deadline = Clock::now() + config.timeout;
  const auto hosts =
      exchange_host_identities(store, config.name + "/tcp/host", rank, size, deadline);
  std::vector<std::unique_ptr<Link>> links(static_cast<std::size_t>(size));
  connect_tcp_links(store, config, rank, peers_of(rank, size), hosts, deadline, links);
  return std::make_unique<MeshTransport>("tcp", rank, std::move(links),
                                         std::make_unique<HeapSendMemory>(config.send_bytes),
                                         config.early_bytes);
}

}  // namespace agoq
