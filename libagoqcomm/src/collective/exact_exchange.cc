#include "collective/exact_exchange.h"

#include <cstring>
#include <vector>

#include "collective/exact_reduce.h"
#include "collective/stopwatch.h"

namespace agoq {
namespace {

// In the order of summing, this rank's own among them.
std::vector<const void*> pieces_of(std::span<const std::byte* const> received, const void* own) {
  std::vector<const void*> pieces;
  for (const std::byte* piece : received) {
    pieces.push_back(piece == nullptr ? own : static_cast<const void*>(piece));
  }
  return pieces;
}

}  // namespace

Ticket ExactExchange::expect_result(int peer, std::int64_t count, Tag tag, void* out) {
  return transport_.post_receive(peer, tag, out, static_cast<std::size_t>(message_bytes(count)));
}

void ExactExchange::take_result(Ticket ticket, std::int64_t, void*) { transport_.release(ticket); }

void ExactExchange::do_send(const void* values, Extent extent, std::span<const int> peers,
                            Tag tag) {
  post_values(values, message_bytes(extent.count), peers, tag);
}

void ExactExchange::do_send_result(const void* values, Extent extent, std::span<const int> peers,
                                   Tag tag, void* out) {
  post_values(values, message_bytes(extent.count), peers, tag);
  if (out != values) std::memcpy(out, values, message_bytes(extent.count));
}

void ExactExchange::do_forward_result(Ticket ticket, Extent extent, void* out,
                                      std::span<const int> peers, Tag tag) {
  transport_.release(ticket);
  post_values(out, message_bytes(extent.count), peers, tag);
}

void ExactExchange::do_sum(const Summands& summands, Extent extent, void* out) {
  const Stopwatch stopwatch(stats_.sum_seconds);
  exact_reduce(pieces_of(summands.received, summands.own), extent.count, type_, op_, factor_,
               transport_.size(), out);
}

void ExactExchange::do_sum_and_send(const Summands& summands, Extent extent, void* out,
                                    std::span<const int> peers, Tag tag) {
  do_sum(summands, extent, out);
  post_values(out, message_bytes(extent.count), peers, tag);
}

const void* ExactExchange::do_node_sum(const Summands& summands, Extent extent) {
  const Stopwatch stopwatch(stats_.sum_seconds);
  node_sum_.resize(message_bytes(extent.count));
  exact_reduce(pieces_of(summands.received, summands.own), extent.count, type_, op_within_node(),
               1.0f, transport_.size(), node_sum_.data());
  return node_sum_.data();
}

void ExactExchange::do_send_node_sum(const Summands& summands, Extent extent, int peer, Tag tag) {
  const SendBuffer buffer = transport_.acquire(message_bytes(extent.count));
  {
    const Stopwatch stopwatch(stats_.sum_seconds);
    exact_reduce(pieces_of(summands.received, summands.own), extent.count, type_, op_within_node(),
                 1.0f, transport_.size(), buffer.data);
  }
  transport_.post_send(buffer, {&peer, 1}, tag);
}

ReduceOp ExactExchange::op_within_node() const {
  return op_ == ReduceOp::kAvg || op_ == ReduceOp::kPremulSum ? ReduceOp::kSum : op_;
}

}  // namespace agoq
