// DeviceTransport: moves bytes of device memory between ranks, in the order of a stream. It knows
// nothing of formats, chunks or reductions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "agoqcomm/export.h"

namespace agoq {

struct DeviceSend {
  int peer = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

struct DeviceReceive {
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// One object is one rank's end of a group. Not thread-safe but for abort() and error().
class AGOQ_API DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;

  /// Short name for people: "nccl", "inproc", "staging over tcp".
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Puts one group of sends and receives on `stream` and returns without waiting for the device.
  /// They start together once what is on the stream now has been done; what is put on the stream
  /// from then on finds the received bytes there, and may change the sent ones.
  ///
  /// All ranks call it equally often. What a rank sends to a peer in its n-th exchange, at most one
  /// message, the peer receives in its n-th, with as many bytes. No peer is the rank itself, no
  /// message is empty, and a rank may have nothing to do in an exchange. The buffers are device
  /// memory, and no received byte lies in another buffer of the exchange.
  ///
  /// Throws Error: kInvalidArgument; kPeerFailed, kMismatch or kSystem where that is known at once;
  /// kAborted after abort(). The transport then stays failed. What shows later is in error().
  virtual void exchange(std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives,
                        void* stream) = 0;

  /// Whether exchange() may be captured in a graph and replayed.
  virtual bool can_be_captured() const = 0;

  /// What has gone wrong so far, in words; "" while nothing has. Asks, and does not wait. Once it
  /// has words, received bytes mean nothing.
  virtual std::string error() = 0;
  /// Makes running exchanges end as soon as the transport can, and later ones throw
  /// Error(kAborted, reason).
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace agoq
