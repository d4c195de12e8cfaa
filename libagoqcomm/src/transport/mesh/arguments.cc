#include "transport/mesh/arguments.h"

#include <string>

#include "agoqcomm/error.h"

namespace agoq {

void check_arguments(int rank, int size, const TransportConfig& config) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw Error(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                    " ranks: a rank is from 0 up and below the number of ranks");
  }
  if (config.name.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "TransportConfig.name must not be empty");
  }
  if (config.timeout <= std::chrono::milliseconds::zero()) {
    throw Error(ErrorCode::kInvalidArgument, "TransportConfig.timeout must be positive");
  }
  if (config.send_bytes == 0) {
    throw Error(ErrorCode::kInvalidArgument, "TransportConfig.send_bytes must be positive");
  }
}

std::vector<int> peers_of(int rank, int size) {
  std::vector<int> peers;
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) peers.push_back(peer);
  }
  return peers;
}

}  // namespace agoq
