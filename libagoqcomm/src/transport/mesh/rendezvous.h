// Rendezvous: the ranks of a group, who know only a store, get a socket to each other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agoqcomm/store.h"
#include "transport/mesh/endpoint.h"
#include "transport/mesh/unique_fd.h"

namespace agoq {

/// A connected, non-blocking socket to `peer`, who has proved that it read the store.
struct PeerSocket {
  int peer = 0;
  UniqueFd fd;
  std::string address;
  UniqueFd passed;  ///< The descriptor that the peer passed, on Unix sockets.
};

/// One rank's part in meeting `peers`. Every one of them names this rank among its peers.
struct Meeting {
  std::string key;  ///< Prefix of the keys in the store.
  int rank = 0;
  std::vector<int> peers;  ///< Without `rank`.
  Clock::time_point deadline;
  int pass_fd = -1;  ///< Passed to every peer, on Unix sockets.
};

/// Listens at `own` (port 0: any), publishes where, connects to the lower ranks and accepts the
/// higher. Whoever else connects is dropped after at most two seconds, and disturbs nobody.
std::vector<PeerSocket> meet(Store& store, const Meeting& meeting, const Endpoint& own);

/// Every rank of `ranks` states its problem, or none; every one of them gets the same answer: the
/// first problem in the order of `ranks`, with the rank that has it. `key` is used once.
std::optional<std::string> agree(Store& store, const std::string& key, int rank,
                                 const std::vector<int>& ranks,
                                 const std::optional<std::string>& problem,
                                 Clock::time_point deadline);

}  // namespace agoq
