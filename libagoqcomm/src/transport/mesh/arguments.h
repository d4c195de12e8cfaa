// Checks that the factories of tcp, shm and auto share.
#pragma once

#include <vector>

#include "agoqcomm/transport_config.h"

namespace agoq {

/// Throws Error(kInvalidArgument) that names what is wrong.
void check_arguments(int rank, int size, const TransportConfig& config);

/// All ranks but `rank`.
std::vector<int> peers_of(int rank, int size);

}  // namespace agoq
