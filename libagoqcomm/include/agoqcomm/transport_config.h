// What tcp, shm and auto transports may be told. Equal on all ranks but for `interface`.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace agoq {

/// Value type; copy freely.
struct TransportConfig {
  /// Prefix of the group's keys in the store; two groups that share a store need two.
  std::string name = "agoq";
  /// For finding and connecting all peers.
  std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  /// Network interface whose address peers connect to. "": AGOQ_SOCKET_IFNAME, then
  /// GLOO_SOCKET_IFNAME; then loopback if all ranks share a host, else the address that reaches the
  /// store.
  std::string interface;
  /// Most bytes kept of messages that arrive before their receive is posted, for each peer. Beyond
  /// them the peer is not read until a receive is posted: it has to wait.
  std::size_t early_bytes = std::size_t{4} << 20;
  /// Most bytes of send buffers held or in flight, where they are private memory.
  std::size_t send_bytes = std::size_t{64} << 20;
  /// shm: bytes of one rank's shared slots. A host holds this much for each of its ranks.
  std::size_t shared_bytes = std::size_t{16} << 20;
};

}  // namespace agoq
