// The other ranks, in the order of sending.
#pragma once

#include <vector>

#include "agoqcomm/transport.h"

namespace agoq {

/// The next rank first, so that not everyone sends to rank 0 first.
inline std::vector<int> peers_of(const Transport& transport) {
  std::vector<int> peers;
  for (int distance = 1; distance < transport.size(); ++distance) {
    peers.push_back((transport.rank() + distance) % transport.size());
  }
  return peers;
}

}  // namespace agoq
