#include "collective/step_window.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agoqcomm/error.h"
#include "collective/peers.h"

namespace agoq {
namespace {

// Enough to keep encoding, wire, summing, wire and decoding busy; more only takes memory and cache.
constexpr std::int64_t kMaxWindow = 4;

}  // namespace

StepWindow::StepWindow(Transport& transport, SegmentExchange& exchange, ChunkPlan plan)
    : transport_(transport),
      exchange_(exchange),
      plan_(std::move(plan)),
      peers_(peers_of(transport)),
      window_(kMaxWindow) {
  const int size = transport_.size();
  send_buffer_limit_ = 0;
  if (!exchange_.uses_send_buffers()) return;
  const std::int64_t bytes = exchange_.message_bytes(plan_.segment_numel());
  send_buffer_limit_ = transport_.send_buffer_limit(bytes);
  // A step takes at most one buffer for each peer's piece and one for the own result.
  if (send_buffer_limit_ < size) {
    throw Error(ErrorCode::kSystem, "transport " + std::string(transport_.name()) +
                                        " has room for " + std::to_string(send_buffer_limit_) +
                                        " messages of " + std::to_string(bytes) + " bytes where " +
                                        std::to_string(size) +
                                        " ranks need one each: lower Options::segment_numel");
  }
  window_ = std::min<std::int64_t>(kMaxWindow, send_buffer_limit_ / size);
}

bool StepWindow::advance() {
  for (bool progress = true; progress;) {
    progress = false;
    // Open steps first: a peer may be waiting for their sums.
    for (Step& step : steps_) progress |= work(step);
    progress |= retire();
    if (may_open()) {
      open(steps_.emplace_back(Step{.index = opened_++, .pieces = {}, .results = {}}));
      progress = true;
    }
  }
  return retired_ == plan_.steps() && exchange_.sends_complete();
}

Awaited StepWindow::awaited() const {
  Awaited awaited;
  if (steps_.empty()) return awaited;
  // A missing piece says who is late. A missing result does not: its owner may itself be waiting.
  steps_.front().pieces.add_awaited(awaited);
  if (awaited.empty()) steps_.front().results.add_awaited(awaited);
  return awaited;
}

Extent StepWindow::extent(int rank, std::int64_t step) const {
  const Segment segment = plan_.segment(rank, step);
  return {.count = segment.count, .first_element = plan_.chunk_offset(rank) + segment.offset};
}

bool StepWindow::retire() {
  const std::int64_t before = retired_;
  while (!steps_.empty() && steps_.front().pieces_taken && steps_.front().results.all_complete()) {
    steps_.pop_front();
    if (hears_from_all(retired_)) delivered_ = std::max(delivered_, retired_ - window_ + 1);
    ++retired_;
  }
  return retired_ != before;
}

bool StepWindow::may_open() {
  if (opened_ == plan_.steps() || opened_ - retired_ >= window_) return false;
  if (send_buffer_limit_ == 0) return true;
  const auto has_room = [&] {
    return (opened_ + 1 - delivered_) * transport_.size() <= send_buffer_limit_;
  };
  // Peers that send nothing back give no sign of what they have read: then ask the transport.
  if (!has_room() && exchange_.sends_complete()) delivered_ = std::max(delivered_, retired_);
  return has_room();
}

}  // namespace agoq
