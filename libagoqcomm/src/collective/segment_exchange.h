// How a segment becomes a message and a message becomes numbers again: the one difference between a
// quantized and an exact call. The algorithms are written once, over this interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "agoqcomm/stats.h"
#include "agoqcomm/topology.h"
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
  SegmentExchange(Transport& transport, OperationStats& stats, const Topology& topology)
      : transport_(transport), stats_(stats), topology_(topology) {}
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
  /// take_result() that also sends the message on, as it came.
  void forward_result(Ticket ticket, Extent extent, void* out, std::span<const int> peers, Tag tag);

  /// Sum of the pieces, keyed by rank, and of `own` in rank order into `out`, which may be the
  /// memory of `own`.
  void sum(const ReceiveSet& pieces, const void* own, Extent extent, void* out) {
    sum(pieces, {}, own, extent, out);
  }
  /// The same in two levels where there are `node_sums`, keyed by node: this node's pieces first,
  /// then all nodes' sums in node order.
  void sum(const ReceiveSet& pieces, const ReceiveSet& node_sums, const void* own, Extent extent,
           void* out);
  /// The same, sent to `peers` as well; `out` then holds what they will read.
  void sum_and_send(const ReceiveSet& pieces, const ReceiveSet& node_sums, const void* own,
                    Extent extent, void* out, std::span<const int> peers, Tag tag);
  /// Sends the sum of a node's pieces to `peer`, who has them as one of its node_sums.
  void send_node_sum(const ReceiveSet& pieces, const void* own, Extent extent, int peer, Tag tag);

  /// Sends of the caller's memory that still need this rank, or stand behind one. Makes progress.
  std::int64_t sends_in_flight();
  /// True once no send of this exchange needs this rank any more. Makes progress.
  bool sends_complete();

 protected:
  /// What a sum is made of.
  struct Summands {
    /// In the order of summing; null where this rank's own contribution belongs.
    std::span<const std::byte* const> received;
    const void* own;
    /// `own` is what do_node_sum() returned, not the caller's.
    bool own_is_node_sum = false;
  };

  virtual void do_send(const void* values, Extent extent, std::span<const int> peers, Tag tag) = 0;
  virtual void do_send_result(const void* values, Extent extent, std::span<const int> peers,
                              Tag tag, void* out) = 0;
  virtual void do_forward_result(Ticket ticket, Extent extent, void* out,
                                 std::span<const int> peers, Tag tag) = 0;
  virtual void do_sum(const Summands& summands, Extent extent, void* out) = 0;
  virtual void do_sum_and_send(const Summands& summands, Extent extent, void* out,
                               std::span<const int> peers, Tag tag) = 0;
  /// In memory of the exchange, until the next call.
  virtual const void* do_node_sum(const Summands& summands, Extent extent) = 0;
  virtual void do_send_node_sum(const Summands& summands, Extent extent, int peer, Tag tag) = 0;

  /// Sends the caller's memory; sends_complete() waits for it.
  void post_values(const void* values, std::size_t bytes, std::span<const int> peers, Tag tag);

  Transport& transport_;
  OperationStats& stats_;

 private:
  void count_sent(Extent extent, std::span<const int> peers);
  /// Valid until the next call.
  Summands summands(const ReceiveSet& received, int own_key, const void* own);
  Summands summands(const ReceiveSet& pieces, const ReceiveSet& node_sums, const void* own,
                    Extent extent);
  void release(const ReceiveSet& received);

  const Topology& topology_;
  std::deque<Ticket> value_sends_;
  std::vector<ReceiveSet::Receive> in_order_;
  std::vector<const std::byte*> pointers_;
};

}  // namespace agoq
