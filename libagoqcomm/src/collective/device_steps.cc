#include "collective/device_steps.h"

#include "agoqcomm/wire_layout.h"
#include "collective/rounding_stage.h"

namespace agoq {

DeviceSteps::DeviceSteps(const DeviceGroup& group, const DeviceStepArguments& arguments,
                         const ChunkPlan& plan, const DeviceSlots& slots, OperationStats& stats)
    : group_(group),
      arguments_(arguments),
      plan_(plan),
      slots_(slots),
      stats_(stats),
      rank_(group.transport.rank()) {}

std::int64_t DeviceSteps::message_bytes(std::int64_t count) const {
  return WireLayout(group_.codec.format(), count).total_bytes();
}

void DeviceSteps::encode(std::span<const DeviceEncodeSegment> segments, const Rounding& rounding) {
  group_.codec.encode(segments, arguments_.type, arguments_.stream, rounding);
}

void DeviceSteps::decode(std::span<const DeviceDecodeSegment> segments) {
  group_.codec.decode(segments, arguments_.type, arguments_.stream);
}

void DeviceSteps::sum_decode(const DeviceSumSegment& segment) {
  group_.codec.sum_decode({&segment, 1}, sum_settings(), arguments_.stream);
}

void DeviceSteps::send_pieces(std::int64_t step, std::span<const void* const> chunks) {
  to_encode_.clear();
  // The next rank first, so that not everyone sends to rank 0 first.
  for (int distance = 1; distance < plan_.ranks(); ++distance) {
    const int peer = (rank_ + distance) % plan_.ranks();
    const Segment theirs = segment(peer, step);
    if (theirs.count == 0) continue;
    std::byte* encoded = slots_.sent_piece(rank_, peer, step);
    to_encode_.push_back({at(static_cast<const std::byte*>(chunks[peer]), theirs.offset), encoded,
                          theirs.count, first_element(peer, step)});
    add_send(peer, encoded, theirs.count, message_bytes(theirs.count));
  }
  if (!to_encode_.empty()) {
    encode(to_encode_, rounding(kPieceStage));
  }
  const std::int64_t count = segment(rank_, step).count;
  for (int peer = 0; peer < plan_.ranks() && count > 0; ++peer) {
    if (peer == rank_) continue;
    receives_.push_back({peer, slots_.received_piece(rank_, peer, step),
                         static_cast<std::size_t>(message_bytes(count))});
  }
  exchange(Traffic::kPieces, step);
}

void DeviceSteps::sum(std::int64_t step, const void* own, void* out) {
  group_.lanes.join(Traffic::kPieces, step, arguments_.stream);
  if (segment(rank_, step).count == 0) return;
  prepare_sum(step, own, out);
  sum_decode(to_sum_);
}

void DeviceSteps::sum_and_send(std::int64_t step, const void* own, void* out) {
  group_.lanes.join(Traffic::kPieces, step, arguments_.stream);
  if (segment(rank_, step).count > 0) {
    prepare_sum(step, own, out);
    to_sum_.encoded = slots_.result(rank_, step);
    group_.codec.sum_encode({&to_sum_, 1}, sum_settings(), arguments_.stream,
                            rounding(kReducedStage));
  }
  exchange_results(step);
}

void DeviceSteps::send_result(std::int64_t step, const void* own) {
  const Segment mine = segment(rank_, step);
  if (mine.count > 0) {
    const DeviceEncodeSegment own_segment{at(static_cast<const std::byte*>(own), mine.offset),
                                          slots_.result(rank_, step), mine.count,
                                          first_element(rank_, step)};
    encode({&own_segment, 1}, rounding(kPieceStage));
  }
  exchange_results(step);
}

void DeviceSteps::take_results(std::int64_t step, std::span<void* const> chunks, Results which) {
  await_results(step);
  to_decode_.clear();
  for (int owner = 0; owner < plan_.ranks(); ++owner) {
    const Segment theirs = segment(owner, step);
    if (theirs.count == 0 || (owner == rank_ && which == Results::kOfOthers)) continue;
    to_decode_.push_back({slots_.result(owner, step),
                          at(static_cast<std::byte*>(chunks[owner]), theirs.offset), theirs.count});
  }
  if (!to_decode_.empty()) {
    decode(to_decode_);
  }
}

void DeviceSteps::await_results(std::int64_t step) {
  group_.lanes.join(Traffic::kResults, step, arguments_.stream);
}

void DeviceSteps::exchange_values(std::int64_t step, const void* own,
                                  std::span<void* const> chunks) {
  const auto bytes = [&](std::int64_t count) {
    return count * static_cast<std::int64_t>(size_of(arguments_.type));
  };
  for (int distance = 1; distance < plan_.ranks(); ++distance) {
    const int peer = (rank_ + distance) % plan_.ranks();
    const Segment mine = segment(rank_, step);
    const Segment theirs = segment(peer, step);
    if (mine.count > 0) {
      add_send(peer, at(static_cast<const std::byte*>(own), mine.offset), mine.count,
               bytes(mine.count));
    }
    if (theirs.count > 0) {
      receives_.push_back({peer, at(static_cast<std::byte*>(chunks[peer]), theirs.offset),
                           static_cast<std::size_t>(bytes(theirs.count))});
    }
  }
  exchange(Traffic::kResults, step);
}

void DeviceSteps::exchange_results(std::int64_t step) {
  const std::int64_t count = segment(rank_, step).count;
  for (int distance = 1; distance < plan_.ranks(); ++distance) {
    const int peer = (rank_ + distance) % plan_.ranks();
    const std::int64_t theirs = segment(peer, step).count;
    if (count > 0) add_send(peer, slots_.result(rank_, step), count, message_bytes(count));
    if (theirs > 0) {
      receives_.push_back(
          {peer, slots_.result(peer, step), static_cast<std::size_t>(message_bytes(theirs))});
    }
  }
  exchange(Traffic::kResults, step);
}

void DeviceSteps::exchange(Traffic traffic, std::int64_t step) {
  group_.lanes.fork(arguments_.stream);
  group_.transport.exchange(sends_, receives_, group_.lanes.wire());
  group_.lanes.mark(traffic, step);
  sends_.clear();
  receives_.clear();
}

void DeviceSteps::add_send(int peer, const void* data, std::int64_t count, std::int64_t bytes) {
  sends_.push_back({peer, data, static_cast<std::size_t>(bytes)});
  stats_.wire_bytes += bytes;
  stats_.exact_bytes += count * static_cast<std::int64_t>(size_of(arguments_.type));
}

void DeviceSteps::prepare_sum(std::int64_t step, const void* own, void* out) {
  const Segment mine = segment(rank_, step);
  pieces_.assign(static_cast<std::size_t>(plan_.ranks()), nullptr);
  for (int peer = 0; peer < plan_.ranks(); ++peer) {
    if (peer != rank_) pieces_[peer] = slots_.received_piece(rank_, peer, step);
  }
  to_sum_ = {};
  to_sum_.pieces = pieces_;
  to_sum_.own = at(static_cast<const std::byte*>(own), mine.offset);
  to_sum_.values = at(static_cast<std::byte*>(out), mine.offset);
  to_sum_.count = mine.count;
  to_sum_.first_element = first_element(rank_, step);
}

DeviceSum DeviceSteps::sum_settings() const {
  DeviceSum sum;
  sum.own_rank = rank_;
  sum.own_type = arguments_.type;
  sum.type = arguments_.type;
  sum.factor = arguments_.factor;
  return sum;
}

template <typename Byte>
Byte* DeviceSteps::at(Byte* chunk, std::int64_t offset) const {
  return chunk + offset * static_cast<std::int64_t>(size_of(arguments_.type));
}

Rounding DeviceSteps::rounding(std::uint32_t stage) const {
  Rounding rounding = arguments_.rounding;
  rounding.stage = stage;
  return rounding;
}

}  // namespace agoq
