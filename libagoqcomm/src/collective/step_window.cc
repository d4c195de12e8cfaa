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

StepWindow::StepWindow(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
                       std::vector<int> recipients, int buffers_a_step)
    : transport_(transport),
      exchange_(exchange),
      plan_(std::move(plan)),
      peers_(peers_of(transport)),
      recipients_(std::move(recipients)),
      buffers_a_step_(buffers_a_step),
      window_(kMaxWindow) {
  if (buffers_a_step_ == 0) return;
  const std::int64_t bytes = exchange_.message_bytes(plan_.segment_numel());
  send_buffer_limit_ = transport_.send_buffer_limit(bytes);
  if (send_buffer_limit_ < buffers_a_step_) {
    throw Error(ErrorCode::kSystem,
                "transport " + std::string(transport_.name()) + " has room for " +
                    std::to_string(send_buffer_limit_) + " messages of " + std::to_string(bytes) +
                    " bytes where " + std::to_string(transport_.size()) + " ranks need " +
                    std::to_string(buffers_a_step_) + ": lower Options::segment_numel");
  }
  window_ = std::min<std::int64_t>(kMaxWindow, send_buffer_limit_ / buffers_a_step_);
}

bool StepWindow::advance() {
  for (bool progress = true; progress;) {
    progress = false;
    // Open steps first: a peer may be waiting for their sums.
    for (Step& step : steps_) progress |= work(step);
    progress |= retire();
    if (may_open()) {
      open(steps_.emplace_back(Step{.index = opened_++, .labels = {}, .sums = {}, .results = {}}));
      progress = true;
    }
  }
  return retired_ == plan_.steps() && exchange_.sends_complete();
}

Awaited StepWindow::awaited() const {
  Awaited awaited;
  if (steps_.empty()) return awaited;
  // A missing piece says who is late. A missing sum or result does not: whoever owes it may itself
  // be waiting.
  const Step& oldest = steps_.front();
  oldest.labels.add_awaited(awaited);
  for (const Sum& sum : oldest.sums) sum.pieces.add_awaited(awaited);
  if (!awaited.empty()) return awaited;
  for (const Sum& sum : oldest.sums) sum.node_sums.add_awaited(awaited);
  if (awaited.empty()) oldest.results.add_awaited(awaited);
  return awaited;
}

Extent StepWindow::extent(int chunk, std::int64_t step) const {
  const Segment segment = plan_.segment(chunk, step);
  return {.count = segment.count, .first_element = plan_.chunk_offset(chunk) + segment.offset};
}

bool StepWindow::retire() {
  const auto is_over = [](const Step& step) {
    return std::all_of(step.sums.begin(), step.sums.end(), [](const Sum& s) { return s.taken; }) &&
           step.results.all_complete() && step.labels.all_complete();
  };
  const std::int64_t before = retired_;
  while (!steps_.empty() && is_over(steps_.front())) {
    if (heard_from_recipients(steps_.front())) {
      delivered_ = std::max(delivered_, retired_ - window_ + 1);
    }
    steps_.pop_front();
    ++retired_;
  }
  return retired_ != before;
}

bool StepWindow::may_open() {
  if (opened_ == plan_.steps() || opened_ - retired_ >= window_) return false;
  if (buffers_a_step_ == 0) return true;
  const auto has_room = [&] {
    return (opened_ + 1 - delivered_) * buffers_a_step_ <= send_buffer_limit_;
  };
  // Peers that send nothing back give no sign of what they have read: then ask the transport.
  if (!has_room() && exchange_.sends_complete()) delivered_ = std::max(delivered_, retired_);
  return has_room();
}

bool StepWindow::heard_from_recipients(const Step& step) const {
  std::vector<bool> heard(transport_.size());
  const auto note = [&](const ReceiveSet& receives) {
    for (const ReceiveSet::Receive& receive : receives.receives()) heard[receive.peer] = true;
  };
  note(step.labels);
  note(step.results);
  for (const Sum& sum : step.sums) {
    note(sum.pieces);
    note(sum.node_sums);
  }
  return std::all_of(recipients_.begin(), recipients_.end(), [&](int peer) { return heard[peer]; });
}

}  // namespace agoq
