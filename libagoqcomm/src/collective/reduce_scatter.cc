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
    : FlatWindow(transport, exchange, std::move(plan)), in_(in.begin(), in.end()), out_(out) {}

void ReduceScatter::open(Step& step) {
  expect_pieces(step);
  send_pieces(step);
}

bool ReduceScatter::work(Step& step) {
  if (step.sums.empty() || step.sums.front().taken) return false;
  Sum& sum = step.sums.front();
  const bool progress = sum.pieces.poll(transport_, [](const ReceiveSet::Receive&) {});
  if (!sum.pieces.all_complete()) return progress;
  const std::int64_t at = exchange_.value_bytes(plan_.segment(rank(), step.index).offset);
  make(sum, step.index, advanced(static_cast<const std::byte*>(in_[rank()]), at),
       advanced(static_cast<std::byte*>(out_), at));
  sum.taken = true;
  return true;
}

void ReduceScatter::expect_pieces(Step& step) {
  if (!travels(rank(), step.index)) return;
  Sum& sum = step.sums.emplace_back(Sum{.chunk = rank(), .pieces = {}, .node_sums = {}});
  const std::int64_t count = extent(rank(), step.index).count;
  for (const int peer : peers()) {
    const Ticket ticket =
        exchange_.expect_piece(peer, count, message_tag(Phase::kPiece, step.index));
    sum.pieces.add(peer, ticket, exchange_.message_bytes(count));
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

void ReduceScatter::make(const Sum& sum, std::int64_t step, const void* own, void* out) {
  exchange_.sum(sum.pieces, own, extent(sum.chunk, step), out);
}

}  // namespace agoq
