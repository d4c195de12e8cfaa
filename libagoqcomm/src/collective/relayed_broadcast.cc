#include "collective/relayed_broadcast.h"

#include <algorithm>
#include <utility>

#include "collective/message_tag.h"

namespace agoq {
namespace {

// Below, the second hop costs about what it saves; docs/transports.md has the measurements.
constexpr std::int64_t kLeastBytes = 512 << 10;

// From here on messages are as long as in any other call.
constexpr std::int64_t kLongBytes = 4 << 20;
constexpr std::int64_t kSegmentsOfShort = 4;

}  // namespace

bool is_relayed(std::string_view transport, const Topology& topology, std::int64_t bytes) {
  if (topology.size() <= 2 || bytes < kLeastBytes) return false;
  if (transport == "shm" || transport == "inproc") return false;
  return transport != "auto" || topology.nodes() > 1;
}

std::int64_t broadcast_segment_numel(std::int64_t segment_numel, std::int64_t bytes) {
  return bytes < kLongBytes ? segment_numel * kSegmentsOfShort : segment_numel;
}

RelayedBroadcast::RelayedBroadcast(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
                                   int root, void* data)
    : FlatWindow(transport, exchange, std::move(plan)),
      root_(root),
      data_(static_cast<std::byte*>(data)),
      relayed_to_(peers()) {
  std::erase(relayed_to_, root);
}

void RelayedBroadcast::open(Step& step) {
  rank() == root_ ? open_on_root(step) : open_on_others(step);
}

void RelayedBroadcast::open_on_root(Step& step) {
  if (step.index == 0) {
    const Tag tag = message_tag(Phase::kLabel, 0);
    for (const int peer : peers()) {
      step.labels.add(peer, transport_.post_receive(peer, tag, 0), 0);
    }
  }
  const Tag to_owner = message_tag(Phase::kPiece, step.index);
  for (const int peer : peers()) {
    if (!travels(peer, step.index)) continue;
    const Extent theirs = extent(peer, step.index);
    exchange_.send_piece(at(theirs), theirs, {&peer, 1}, to_owner);
  }
  const Extent own = extent(root_, step.index);
  if (own.count == 0) return;
  exchange_.send_result(at(own), own, peers(), message_tag(Phase::kResult, step.index), at(own));
}

void RelayedBroadcast::open_on_others(Step& step) {
  if (travels(rank(), step.index)) {
    expect(step, root_, rank(), message_tag(Phase::kPiece, step.index));
  }
  const Tag relayed = message_tag(Phase::kResult, step.index);
  for (const int peer : peers()) {
    const bool sends =
        peer == root_ ? extent(root_, step.index).count > 0 : travels(peer, step.index);
    if (sends) expect(step, peer, peer, relayed);
  }
  if (step.index != 0) return;
  exchange_.send_piece(nullptr, {}, {&root_, 1}, message_tag(Phase::kLabel, 0));
}

bool RelayedBroadcast::work(Step& step) {
  const bool heard = step.labels.poll(
      transport_, [&](const ReceiveSet::Receive& label) { transport_.release(label.ticket); });
  const bool taken = step.results.poll(transport_, [&](const ReceiveSet::Receive& result) {
    const Extent chunk = extent(result.key, step.index);
    if (result.key == rank()) {
      exchange_.forward_result(result.ticket, chunk, at(chunk), relayed_to_,
                               message_tag(Phase::kResult, step.index));
    } else {
      exchange_.take_result(result.ticket, chunk.count, at(chunk));
    }
  });
  return heard || taken;
}

void RelayedBroadcast::expect(Step& step, int from, int chunk, Tag tag) {
  const Extent theirs = extent(chunk, step.index);
  step.results.add(from, exchange_.expect_result(from, theirs.count, tag, at(theirs)),
                   exchange_.message_bytes(theirs.count), chunk);
}

void* RelayedBroadcast::at(Extent extent) const {
  const std::int64_t offset = exchange_.value_bytes(extent.first_element);
  return offset == 0 ? data_ : data_ + offset;
}

}  // namespace agoq
