#include "collective/all_to_all.h"

#include <algorithm>
#include <cstring>

#include "collective/chunk_plan.h"
#include "collective/message_tag.h"
#include "collective/peers.h"

namespace agoq {
namespace {

// Messages in flight to or from a peer: one on the wire while the next is made ready.
constexpr std::int64_t kWindow = 4;

}  // namespace

AllToAll::AllToAll(Transport& transport, SegmentExchange& exchange, const PairChunks& chunks,
                   std::int64_t segment_numel)
    : transport_(transport), exchange_(exchange), segment_numel_(segment_numel) {
  for (const int peer : peers_of(transport_)) {
    add(outgoing_, peer, chunks.in[peer], chunks.in_counts[peer]);
    add(incoming_, peer, chunks.out[peer], chunks.out_counts[peer]);
  }
  const int rank = transport_.rank();
  const std::int64_t own = exchange_.value_bytes(chunks.in_counts[rank]);
  if (chunks.in[rank] != chunks.out[rank] && own > 0) {
    std::memcpy(chunks.out[rank], chunks.in[rank], own);
  }
}

AllToAll::AllToAll(Transport& transport, SegmentExchange& exchange, int peer, Way way, void* values,
                   std::int64_t count, std::int64_t segment_numel)
    : transport_(transport), exchange_(exchange), segment_numel_(segment_numel) {
  add(way == Way::kOut ? outgoing_ : incoming_, peer, values, count);
}

void AllToAll::add(std::vector<Stream>& streams, int peer, const void* values, std::int64_t count) {
  streams.push_back({peer, static_cast<std::byte*>(const_cast<void*>(values)), count});
  check_segments(messages(streams.back()), count, segment_numel_);
}

bool AllToAll::advance() {
  for (bool progress = true; progress;) {
    progress = false;
    for (Stream& stream : incoming_) progress |= receive(stream);
    for (Stream& stream : outgoing_) progress |= send(stream);
  }
  const auto is_done = [&](const Stream& stream) {
    return stream.posted == messages(stream) && stream.receives.empty();
  };
  return std::all_of(incoming_.begin(), incoming_.end(), is_done) &&
         std::all_of(outgoing_.begin(), outgoing_.end(), is_done) && exchange_.sends_complete();
}

Awaited AllToAll::awaited() const {
  Awaited awaited;
  for (const Stream& stream : incoming_) {
    const std::int64_t first = stream.posted - std::ssize(stream.receives);
    if (first == messages(stream)) continue;
    awaited[stream.peer] = exchange_.value_bytes(stream.count - first * segment_numel_);
  }
  return awaited;
}

Extent AllToAll::extent(const Stream& stream, std::int64_t message) const {
  const std::int64_t offset = message * segment_numel_;
  return {.count = std::min(segment_numel_, stream.count - offset), .first_element = offset};
}

void* AllToAll::at(const Stream& stream, std::int64_t message) const {
  const std::int64_t offset = exchange_.value_bytes(message * segment_numel_);
  return offset == 0 ? stream.values : stream.values + offset;
}

bool AllToAll::receive(Stream& stream) {
  bool progress = false;
  while (!stream.receives.empty() && transport_.test(stream.receives.front())) {
    const std::int64_t message = stream.posted - std::ssize(stream.receives);
    exchange_.take_result(stream.receives.front(), extent(stream, message).count,
                          at(stream, message));
    stream.receives.pop_front();
    progress = true;
  }
  while (stream.posted < messages(stream) && std::ssize(stream.receives) < kWindow) {
    const Extent next = extent(stream, stream.posted);
    stream.receives.push_back(exchange_.expect_result(stream.peer, next.count,
                                                      message_tag(Phase::kPiece, stream.posted),
                                                      at(stream, stream.posted)));
    ++stream.posted;
    progress = true;
  }
  return progress;
}

bool AllToAll::send(Stream& stream) {
  if (stream.posted == messages(stream)) return false;
  if (exchange_.sends_in_flight() >= kWindow * std::ssize(outgoing_)) return false;
  exchange_.send_piece(at(stream, stream.posted), extent(stream, stream.posted), {&stream.peer, 1},
                       message_tag(Phase::kPiece, stream.posted));
  ++stream.posted;
  return true;
}

}  // namespace agoq
