#include "collective/quantized_exchange.h"

#include <algorithm>
#include <cstring>

#include "collective/rounding_stage.h"
#include "collective/stopwatch.h"

namespace agoq {
namespace {

// An output of this size leaves the caches before anyone reads it.
constexpr std::int64_t kStreamedBytes = std::int64_t{16} << 20;

}  // namespace

CacheUse cache_use_of_results(Operation operation, std::int64_t bytes) {
  return operation == Operation::kAllGather && bytes >= kStreamedBytes ? CacheUse::kStreamed
                                                                       : CacheUse::kCached;
}

std::int64_t QuantizedExchange::message_bytes(std::int64_t count) const {
  return WireLayout(codec_.format(), count).total_bytes();
}

std::int64_t QuantizedExchange::value_bytes(std::int64_t count) const {
  return count * static_cast<std::int64_t>(size_of(type_));
}

Ticket QuantizedExchange::expect_result(int peer, std::int64_t count, Tag tag, void*) {
  return transport_.post_receive(peer, tag, static_cast<std::size_t>(message_bytes(count)));
}

void QuantizedExchange::take_result(Ticket ticket, std::int64_t count, void* out) {
  if (count > 0) {
    const Stopwatch stopwatch(stats_.decode_seconds);
    decode(transport_.received(ticket), count, out, results_);
  }
  transport_.release(ticket);
}

void QuantizedExchange::do_send(const void* values, Extent extent, std::span<const int> peers,
                                Tag tag) {
  const SendBuffer buffer = transport_.acquire(message_bytes(extent.count));
  {
    const Stopwatch stopwatch(stats_.encode_seconds);
    encode(values, extent, buffer.data);
  }
  transport_.post_send(buffer, peers, tag);
}

void QuantizedExchange::do_send_result(const void* values, Extent extent,
                                       std::span<const int> peers, Tag tag, void* out) {
  const SendBuffer buffer = transport_.acquire(message_bytes(extent.count));
  {
    const Stopwatch stopwatch(stats_.encode_seconds);
    encode(values, extent, buffer.data);
  }
  {
    const Stopwatch stopwatch(stats_.decode_seconds);
    decode(buffer.data, extent.count, out, CacheUse::kAutomatic);
  }
  transport_.post_send(buffer, peers, tag);
}

void QuantizedExchange::do_forward_result(Ticket ticket, Extent extent, void* out,
                                          std::span<const int> peers, Tag tag) {
  const auto bytes = static_cast<std::size_t>(message_bytes(extent.count));
  const SendBuffer buffer = transport_.acquire(bytes);
  std::memcpy(buffer.data, transport_.received(ticket), bytes);
  transport_.post_send(buffer, peers, tag);
  take_result(ticket, extent.count, out);
}

void QuantizedExchange::do_sum(const Summands& summands, Extent extent, void* out) {
  const Stopwatch stopwatch(stats_.sum_seconds);
  sum_decode(pieces_of(summands), extent, factor_, out, type_);
}

void QuantizedExchange::do_sum_and_send(const Summands& summands, Extent extent, void* out,
                                        std::span<const int> peers, Tag tag) {
  const SendBuffer buffer = transport_.acquire(message_bytes(extent.count));
  {
    const Stopwatch stopwatch(stats_.sum_seconds);
    sum_encode(pieces_of(summands), extent, factor_, buffer.data, out,
               rounding(kReducedStage, extent));
  }
  transport_.post_send(buffer, peers, tag);
}

const void* QuantizedExchange::do_node_sum(const Summands& summands, Extent extent) {
  const Stopwatch stopwatch(stats_.sum_seconds);
  if (std::ssize(node_sum_) < extent.count) node_sum_.resize(extent.count);
  sum_decode(pieces_of(summands), extent, 1.0f, node_sum_.data(), DataType::kFloat32);
  return node_sum_.data();
}

void QuantizedExchange::do_send_node_sum(const Summands& summands, Extent extent, int peer,
                                         Tag tag) {
  const SendBuffer buffer = transport_.acquire(message_bytes(extent.count));
  {
    const Stopwatch stopwatch(stats_.sum_seconds);
    sum_encode(pieces_of(summands), extent, 1.0f, buffer.data, nullptr,
               rounding(kNodeSumStage, extent));
  }
  transport_.post_send(buffer, {&peer, 1}, tag);
}

void QuantizedExchange::encode(const void* values, Extent extent, std::byte* encoded) const {
  codec_.encode(values, type_, extent.count, encoded, rounding(kPieceStage, extent));
}

void QuantizedExchange::decode(const std::byte* encoded, std::int64_t count, void* values,
                               CacheUse use) const {
  codec_.decode(encoded, count, values, type_, use);
}

void QuantizedExchange::sum_decode(const Pieces& pieces, Extent extent, float factor, void* values,
                                   DataType type) const {
  codec_.sum_decode(pieces, extent.count, factor, values, type);
}

void QuantizedExchange::sum_encode(const Pieces& pieces, Extent extent, float factor,
                                   std::byte* encoded, void* values,
                                   const Rounding& rounding) const {
  codec_.sum_encode(pieces, extent.count, factor, encoded, values, type_, rounding);
}

Rounding QuantizedExchange::rounding(std::uint32_t stage, Extent extent) const {
  Rounding rounding = rounding_;
  rounding.stage = stage;
  rounding.first_element = extent.first_element;
  return rounding;
}

Pieces QuantizedExchange::pieces_of(const Summands& summands) const {
  const auto own = std::find(summands.received.begin(), summands.received.end(), nullptr);
  return {.encoded = summands.received,
          .own = summands.own,
          .own_type = summands.own_is_node_sum ? DataType::kFloat32 : type_,
          .own_rank = static_cast<int>(own - summands.received.begin())};
}

}  // namespace agoq
