#include "collective/reduce_scatter.h"

#include <utility>

#include "collective/message_tag.h"

namespace agoq {
namespace {

// Null stays null: an empty chunk need not have memory.
template <typename Byte>
Byte* advanced(Byte* base, std::int64_t bytes) {
  return bytes == 0 ? base : base + bytes;
}

}  // namespace

ReduceScatter::ReduceScatter(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
                             std::span<const void* const> in, void* out)
    : StepWindow(transport, exchange, std::move(plan)), in_(in.begin(), in.end()), out_(out) {}

void ReduceScatter::open(Step& step) {
  expect_pieces(step);
  send_pieces(step);
}

bool ReduceScatter::work(Step& step) {
  if (step.pieces_taken) return false;
  const bool progress = step.pieces.poll(transport_, [](const ReceiveSet::Receive&) {});
  if (!step.pieces.all_complete()) return progress;
  const std::int64_t at = exchange_.value_bytes(plan_.segment(rank(), step.index).offset);
  sum(step, extent(rank(), step.index), advanced(static_cast<const std::byte*>(in_[rank()]), at),
      advanced(static_cast<std::byte*>(out_), at));
  step.pieces_taken = true;
  return true;
}

void ReduceScatter::expect_pieces(Step& step) {
  if (!travels(rank(), step.index)) return;
  step.pieces_taken = false;
  const std::int64_t count = extent(rank(), step.index).count;
  for (const int peer : peers()) {
    const Ticket ticket =
        exchange_.expect_piece(peer, count, message_tag(Phase::kPiece, step.index));
    step.pieces.add(peer, ticket, exchange_.message_bytes(count));
  }
}

void ReduceScatter::send_pieces(const Step& step) {
  for (const int peer : peers()) {
    if (!travels(peer, step.index)) continue;
    const std::int64_t at = exchange_.value_bytes(plan_.segment(peer, step.index).offset);
    exchange_.send_piece(advanced(static_cast<const std::byte*>(in_[peer]), at),
                         extent(peer, step.index), {&peer, 1},
                         message_tag(Phase::kPiece, step.index));
  }
}

void ReduceScatter::sum(const Step& step, Extent extent, const void* own, void* out) {
  exchange_.sum(step.pieces, own, extent, out);
}

}  // namespace agoq
