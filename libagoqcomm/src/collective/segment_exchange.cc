#include "collective/segment_exchange.h"

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

void SegmentExchange::sum(const ReceiveSet& pieces, const void* own, Extent extent, void* out) {
  if (extent.count > 0) do_sum(received_pieces(pieces), own, extent, out);
  release(pieces);
}

void SegmentExchange::sum_and_send(const ReceiveSet& pieces, const void* own, Extent extent,
                                   void* out, std::span<const int> peers, Tag tag) {
  if (extent.count > 0) {
    count_sent(extent, peers);
    do_sum_and_send(received_pieces(pieces), own, extent, out, peers, tag);
  }
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
  stats_.wire_bytes += messages * message_bytes(extent.count);
  stats_.exact_bytes += messages * value_bytes(extent.count);
}

std::span<const std::byte* const> SegmentExchange::received_pieces(const ReceiveSet& pieces) {
  piece_pointers_.assign(transport_.size(), nullptr);
  for (const ReceiveSet::Receive& piece : pieces.receives()) {
    piece_pointers_[piece.peer] = transport_.received(piece.ticket);
  }
  return piece_pointers_;
}

void SegmentExchange::release(const ReceiveSet& pieces) {
  for (const ReceiveSet::Receive& piece : pieces.receives()) transport_.release(piece.ticket);
}

}  // namespace agoq
