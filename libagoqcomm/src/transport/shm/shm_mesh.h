// The shm links of one rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/store.h"
#include "agoqcomm/transport_config.h"
#include "transport/mesh/link.h"
#include "transport/shm/arena.h"

namespace agoq {

/// Puts a link into links[peer] for each of `members` but `rank`, who all do the same, and returns
/// the arena they send from. Where any of them cannot share memory, every one gets the same words
/// in `problem` and no links.
std::shared_ptr<Arena> connect_shm_links(Store& store, const TransportConfig& config, int rank,
                                         const std::vector<int>& members,
                                         Clock::time_point deadline,
                                         std::vector<std::unique_ptr<Link>>& links,
                                         std::optional<std::string>& problem);

}  // namespace agoq
