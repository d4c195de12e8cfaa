#include "transport/tcp/tcp_mesh.h"

#include <algorithm>

#include "transport/mesh/rendezvous.h"
#include "transport/tcp/local_address.h"
#include "transport/tcp/tcp_link.h"

namespace agoq {
namespace {

Endpoint own_endpoint(const Store& store, const TransportConfig& config,
                      const std::vector<std::string>& hosts) {
  const std::string interface = chosen_interface(config);
  if (!interface.empty()) return address_of_interface(interface);
  const bool one_host =
      std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return host == hosts[0]; });
  return one_host ? Endpoint::inet("127.0.0.1", 0) : outward_address(store.address());
}

}  // namespace

void connect_tcp_links(Store& store, const TransportConfig& config, int rank,
                       const std::vector<int>& peers, const std::vector<std::string>& hosts,
                       Clock::time_point deadline, std::vector<std::unique_ptr<Link>>& links) {
  if (peers.empty()) return;
  const Meeting meeting{config.name + "/tcp", rank, peers, deadline, -1};
  for (PeerSocket& socket : meet(store, meeting, own_endpoint(store, config, hosts))) {
    links[static_cast<std::size_t>(socket.peer)] =
        std::make_unique<TcpLink>(socket.peer, std::move(socket.fd), std::move(socket.address));
  }
}

}  // namespace agoq
