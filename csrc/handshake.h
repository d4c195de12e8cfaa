// Start-up: the ranks of a new group compare their versions and options before they connect.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "options.h"

namespace agoq {

/// What the ranks say of themselves, by rank.
struct Introductions {
  std::vector<std::string> processes;  ///< For PeerProcesses.
  std::vector<std::string> nodes;      ///< For Topology: each rank's node_identity().
};

/// Publishes this rank's fields through the store; rank 0 compares all of them and publishes the
/// verdict, so that every rank throws the same sentence. Throws Error(kMismatch) naming ranks and
/// field, Error(kTimeout) naming the ranks that did not come.
Introductions handshake(c10d::Store& store, int rank, int size, const AgoqOptions& options,
                        std::chrono::milliseconds timeout);

}  // namespace agoq
