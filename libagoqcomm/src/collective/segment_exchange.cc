#include "collective/segment_exchange.h"

#include <algorithm>

namespace agoq {

void SegmentExchange::send_piece(const void* values, Extent extent, std::span<const int> peers,
                                 Tag tag) {
  count_sent(extent, peers);
  if (extent.count == 0) {
    post_values(nullptr, 0, peers, tag);
  } else {
    do_send(values, extent, peers, tag);
  }
}

void SegmentExchange::send_result(const void* values, Extent extent, std::span<const int> peers,
                                  Tag tag, void* out) {
  count_sent(extent, peers);
  if (extent.count == 0) {
    post_values(nullptr, 0, peers, tag);
  } else {
    do_send_result(values, extent, peers, tag, out);
  }
}

Ticket SegmentExchange::expect_piece(int peer, std::int64_t count, Tag tag) {
  return transport_.post_receive(peer, tag, static_cast<std::size_t>(message_bytes(count)));
}

void SegmentExchange::forward_result(Ticket ticket, Extent extent, void* out,
                                     std::span<const int> peers, Tag tag) {
  count_sent(extent, peers);
  do_forward_result(ticket, extent, out, peers, tag);
}

void SegmentExchange::sum(const ReceiveSet& pieces, const ReceiveSet& node_sums, const void* own,
                          Extent extent, void* out) {
  if (extent.count > 0) do_sum(summands(pieces, node_sums, own, extent), extent, out);
  release(pieces);
  release(node_sums);
}

void SegmentExchange::sum_and_send(const ReceiveSet& pieces, const ReceiveSet& node_sums,
                                   const void* own, Extent extent, void* out,
                                   std::span<const int> peers, Tag tag) {
  if (extent.count > 0) {
    count_sent(extent, peers);
    do_sum_and_send(summands(pieces, node_sums, own, extent), extent, out, peers, tag);
  }
  release(pieces);
  release(node_sums);
}

void SegmentExchange::send_node_sum(const ReceiveSet& pieces, const void* own, Extent extent,
                                    int peer, Tag tag) {
  // A rank that is alone on its node has nothing to add: its piece travels once.
  if (pieces.empty()) return send_piece(own, extent, {&peer, 1}, tag);
  count_sent(extent, {&peer, 1});
  do_send_node_sum(summands(pieces, transport_.rank(), own), extent, peer, tag);
  release(pieces);
}

std::int64_t SegmentExchange::sends_in_flight() {
  while (!value_sends_.empty() && transport_.test(value_sends_.front())) {
    transport_.release(value_sends_.front());
    value_sends_.pop_front();
  }
  return std::ssize(value_sends_);
}

bool SegmentExchange::sends_complete() {
  return sends_in_flight() == 0 && transport_.sends_complete();
}

void SegmentExchange::post_values(const void* values, std::size_t bytes, std::span<const int> peers,
                                  Tag tag) {
  if (!peers.empty()) value_sends_.push_back(transport_.post_send(values, bytes, peers, tag));
}

void SegmentExchange::count_sent(Extent extent, std::span<const int> peers) {
  const auto messages = static_cast<std::int64_t>(peers.size());
  const std::int64_t far = std::count_if(peers.begin(), peers.end(), [&](int peer) {
    return topology_.node_of(peer) != topology_.node_of(transport_.rank());
  });
  stats_.wire_bytes += messages * message_bytes(extent.count);
  stats_.wire_bytes_between_nodes += far * message_bytes(extent.count);
  stats_.exact_bytes += messages * value_bytes(extent.count);
}

SegmentExchange::Summands SegmentExchange::summands(const ReceiveSet& received, int own_key,
                                                    const void* own) {
  in_order_ = received.receives();
  std::sort(in_order_.begin(), in_order_.end(),
            [](const auto& a, const auto& b) { return a.key < b.key; });
  pointers_.clear();
  std::ptrdiff_t before_own = 0;
  for (const ReceiveSet::Receive& receive : in_order_) {
    before_own += receive.key < own_key;
    pointers_.push_back(transport_.received(receive.ticket));
  }
  pointers_.insert(pointers_.begin() + before_own, nullptr);
  return {.received = pointers_, .own = own};
}

SegmentExchange::Summands SegmentExchange::summands(const ReceiveSet& pieces,
                                                    const ReceiveSet& node_sums, const void* own,
                                                    Extent extent) {
  const int rank = transport_.rank();
  if (node_sums.empty()) return summands(pieces, rank, own);
  const int node = topology_.node_of(rank);
  if (pieces.empty()) return summands(node_sums, node, own);
  const void* node_sum = do_node_sum(summands(pieces, rank, own), extent);
  Summands all = summands(node_sums, node, node_sum);
  all.own_is_node_sum = true;
  return all;
}

void SegmentExchange::release(const ReceiveSet& received) {
  for (const ReceiveSet::Receive& receive : received.receives()) {
    transport_.release(receive.ticket);
  }
}

}  // namespace agoq
