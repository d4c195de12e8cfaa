// How a segment becomes a message and a message becomes numbers again: the one difference between a
// quantized and an exact call. The algorithms are written once, over this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "agoqcomm/stats.h"
#include "agoqcomm/transport.h"
#include "collective/receive_set.h"

namespace agoq {

/// Which elements of the call a message holds.
struct Extent {
  std::int64_t count = 0;
  std::int64_t first_element = 0;  ///< Index in the call's whole buffer.
};

/// Not thread-safe. An empty extent travels as a message without payload.
class SegmentExchange {
 public:
  SegmentExchange(Transport& transport, OperationStats& stats)
      : transport_(transport), stats_(stats) {}
  virtual ~SegmentExchange() = default;

  /// Bytes of a message of `count` elements.
  virtual std::int64_t message_bytes(std::int64_t count) const = 0;
  /// Bytes of `count` elements in the caller's type.
  virtual std::int64_t value_bytes(std::int64_t count) const = 0;
  /// Whether messages are written into memory of the transport, which is bounded.
  virtual bool uses_send_buffers() const = 0;

  /// Sends a piece of `values`, which the caller's buffer keeps unchanged until it is delivered.
  void send_piece(const void* values, Extent extent, std::span<const int> peers, Tag tag);
  /// Sends `values`, and writes to `out` (which may be the same memory) what the peers will read.
  void send_result(const void* values, Extent extent, std::span<const int> peers, Tag tag,
                   void* out);

  /// Expects a piece to be summed.
  Ticket expect_piece(int peer, std::int64_t count, Tag tag);
  /// Expects numbers that belong into `out` as they are; take_result() puts them there.
  virtual Ticket expect_result(int peer, std::int64_t count, Tag tag, void* out) = 0;
  virtual void take_result(Ticket ticket, std::int64_t count, void* out) = 0;

  /// Sum of all ranks' pieces in rank order into `out`, which may be the memory of `own`.
  void sum(const ReceiveSet& pieces, const void* own, Extent extent, void* out);
  /// The same, sent to every peer as well; `out` then holds what they will read.
  void sum_and_send(const ReceiveSet& pieces, const void* own, Extent extent, void* out,
                    std::span<const int> peers, Tag tag);

  /// Sends of the caller's memory that still need this rank, or stand behind one. Makes progress.
  std::int64_t sends_in_flight();
  /// True once no send of this exchange needs this rank any more. Makes progress.
  bool sends_complete();

 protected:
  virtual void do_send(const void* values, Extent extent, std::span<const int> peers, Tag tag) = 0;
  virtual void do_send_result(const void* values, Extent extent, std::span<const int> peers,
                              Tag tag, void* out) = 0;
  /// `pieces` has an entry a rank, null for this one's.
  virtual void do_sum(std::span<const std::byte* const> pieces, const void* own, Extent extent,
                      void* out) = 0;
  virtual void do_sum_and_send(std::span<const std::byte* const> pieces, const void* own,
                               Extent extent, void* out, std::span<const int> peers, Tag tag) = 0;

  /// Sends the caller's memory; sends_complete() waits for it.
  void post_values(const void* values, std::size_t bytes, std::span<const int> peers, Tag tag);

  Transport& transport_;
  OperationStats& stats_;

 private:
  void count_sent(Extent extent, std::span<const int> peers);
  std::span<const std::byte* const> received_pieces(const ReceiveSet& pieces);
  void release(const ReceiveSet& pieces);

  std::deque<Ticket> value_sends_;
  std::vector<const std::byte*> piece_pointers_;
};

}  // namespace agoq
