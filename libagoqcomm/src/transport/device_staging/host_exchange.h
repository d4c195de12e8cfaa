// The host's part of a staged exchange: the messages between pinned memory and the peers.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "agoqcomm/transport.h"

namespace agoq {

/// Messages of one exchange. Of a value that several peers get there is one send.
struct HostExchange {
  struct Send {
    std::vector<int> peers;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Receive {
    int peer = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  std::uint32_t number = 0;  ///< Counts the group's exchanges; in the label of every message.
  std::vector<Send> sends;
  std::vector<Receive> receives;
};

/// Moves the messages by `transport`; returns when all have been sent and received. Throws what the
/// transport throws, Error(kMismatch) where a peer is at another exchange, and Error(kTimeout) that
/// names a rank that is late.
void run_host_exchange(Transport& transport, const HostExchange& exchange,
                       std::chrono::milliseconds timeout);

}  // namespace agoq
