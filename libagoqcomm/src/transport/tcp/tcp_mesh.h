// The tcp links of one rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agoqcomm/store.h"
#include "agoqcomm/transport_config.h"
#include "transport/mesh/link.h"

namespace agoq {

/// Puts a link into links[peer] for each of `peers`, who do the same. `hosts` is the host identity
/// of every rank, indexed by rank.
void connect_tcp_links(Store& store, const TransportConfig& config, int rank,
                       const std::vector<int>& peers, const std::vector<std::string>& hosts,
                       Clock::time_point deadline, std::vector<std::unique_ptr<Link>>& links);

}  // namespace agoq
