// Start-up: the ranks of a new group compare their versions and options before they connect.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "options.h"

namespace agoq {

/// Publishes this rank's fields through the store; rank 0 compares all of them and publishes the
/// verdict, so that every rank throws the same sentence. Throws Error(kMismatch) naming ranks and
/// field, Error(kTimeout) naming the ranks that did not come. Returns the process identity of each
/// rank, for PeerProcesses.
std::vector<std::string> handshake(c10d::Store& store, int rank, int size,
                                   const AgoqOptions& options, std::chrono::milliseconds timeout);

}  // namespace agoq
