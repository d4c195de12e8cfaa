// Segments as the caller's own bytes.
#pragma once

#include "agoqcomm/types.h"
#include "collective/segment_exchange.h"

namespace agoq {

/// Not thread-safe. Sends from the caller's memory and receives results straight into it: nothing
/// is copied on the way but by the transport.
///
/// That is safe in place, too. A segment that was sent to its owner is overwritten only by the
/// owner's result, which the owner can send only after it has read the segment, or, in two levels,
/// a node's sum of it. Only such a sum has no place with the caller: it is sent from memory of the
/// transport.
class ExactExchange : public SegmentExchange {
 public:
  ExactExchange(Transport& transport, OperationStats& stats, const Topology& topology,
                DataType type, ReduceOp op, float factor)
      : SegmentExchange(transport, stats, topology), type_(type), op_(op), factor_(factor) {}

  std::int64_t message_bytes(std::int64_t count) const override { return value_bytes(count); }
  std::int64_t value_bytes(std::int64_t count) const override {
    return count * static_cast<std::int64_t>(size_of(type_));
  }
  bool uses_send_buffers() const override { return false; }
  Ticket expect_result(int peer, std::int64_t count, Tag tag, void* out) override;
  void take_result(Ticket ticket, std::int64_t count, void* out) override;

 protected:
  void do_send(const void* values, Extent extent, std::span<const int> peers, Tag tag) override;
  void do_send_result(const void* values, Extent extent, std::span<const int> peers, Tag tag,
                      void* out) override;
  void do_forward_result(Ticket ticket, Extent extent, void* out, std::span<const int> peers,
                         Tag tag) override;
  void do_sum(const Summands& summands, Extent extent, void* out) override;
  void do_sum_and_send(const Summands& summands, Extent extent, void* out,
                       std::span<const int> peers, Tag tag) override;
  const void* do_node_sum(const Summands& summands, Extent extent) override;
  void do_send_node_sum(const Summands& summands, Extent extent, int peer, Tag tag) override;

 private:
  /// What the first of two levels does: factors are for the last.
  ReduceOp op_within_node() const;

  DataType type_;
  ReduceOp op_;
  float factor_;
  std::vector<std::byte> node_sum_;
};

}  // namespace agoq
