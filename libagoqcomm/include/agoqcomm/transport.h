// Transport: moves bytes between ranks. It knows nothing of formats, chunks or reductions.
//
// One Transport object is one rank's end of a group. Messages between a pair of ranks are matched
// by Tag, not by order. Every function returns without waiting for a peer, except wait(), so that
// one thread can drive any number of transports.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "agoqcomm/export.h"

namespace agoq {

/// Names one message between an ordered pair of ranks within a call; the collectives lay it out.
using Tag = std::uint64_t;
/// Names one posted send or receive until it is released.
using Ticket = std::uint64_t;
using Clock = std::chrono::steady_clock;

/// What a call is, as opaque bytes that must be equal on both ends of every message of the call.
/// Collectives put operation, type, count and the like in; see src/collective/call_label.h.
using Label = std::array<std::byte, 48>;

/// Memory of the transport that a message is written into before it is posted. Move-only by habit:
/// exactly one post_send() takes it.
struct SendBuffer {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t handle = 0;
};

/// Thrown by begin-of-call checks: a peer runs another call than this rank. The collective that
/// catches it knows how to read both labels.
struct AGOQ_API LabelMismatch {
  int peer;
  Label own;
  Label theirs;
};

/// Not thread-safe but for abort(), which any thread may call at any time.
///
/// Every function may throw Error: kPeerFailed naming the peer whose connection broke, kMismatch
/// when a message has another length than the receive states, kAborted after abort(). After an
/// Error the transport stays failed. Where a label differs test() throws LabelMismatch.
class AGOQ_API Transport {
 public:
  virtual ~Transport() = default;

  /// Short name for people: "inproc", "tcp", "gloo".
  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Starts a call: the messages posted from here on belong to it and carry `label`. The messages
  /// of earlier calls have all been tested complete by then, so tags may be used again.
  virtual void begin_call(const Label& label) = 0;
  /// The same between this rank and `peer` alone, who are then at their next call with each other;
  /// the other ranks need not know. Throws Error(kUnsupported) where a transport has calls of the
  /// whole group only.
  virtual void begin_pair_call(const Label& label, int peer);

  /// Memory for one message, 64-byte aligned, contents undefined. The caller bounds how many it
  /// holds or has in flight; a transport with less room than that throws Error(kSystem).
  virtual SendBuffer acquire(std::size_t bytes) = 0;
  /// Sends `buffer` to each peer and recycles it afterwards. An empty `peers` just recycles it.
  virtual void post_send(SendBuffer buffer, std::span<const int> peers, Tag tag) = 0;
  /// Sends the caller's memory, which must not change until test() of the ticket is true.
  virtual Ticket post_send(const void* data, std::size_t bytes, std::span<const int> peers,
                           Tag tag) = 0;

  /// Expects exactly `bytes` from `peer` into memory of the transport: received() reads it.
  virtual Ticket post_receive(int peer, Tag tag, std::size_t bytes) = 0;
  /// Expects exactly `bytes` from `peer` into the caller's memory.
  virtual Ticket post_receive(int peer, Tag tag, void* into, std::size_t bytes) = 0;

  /// Makes progress; true once the send or receive has completed.
  virtual bool test(Ticket ticket) = 0;
  /// Bytes of a completed receive into transport memory, 64-byte aligned, valid until release().
  virtual const std::byte* received(Ticket ticket) = 0;
  /// Forgets a completed ticket and recycles its memory.
  virtual void release(Ticket ticket) = 0;

  /// True when every send posted with a SendBuffer has left this rank's responsibility: a call ends
  /// only then. Makes progress.
  virtual bool sends_complete() = 0;

  /// Sleeps until a ticket may have completed, or until `deadline`. Spurious returns are allowed.
  virtual void wait(Clock::time_point deadline) = 0;

  /// Makes every running and later call throw Error(kAborted, reason), on this rank at least.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Most send buffers of `bytes` that may be held or in flight at once; a bound for the window of
  /// segments that a collective keeps open.
  virtual int send_buffer_limit(std::size_t bytes) const = 0;
};

}  // namespace agoq
