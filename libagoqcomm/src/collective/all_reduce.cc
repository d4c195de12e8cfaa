#include "collective/all_reduce.h"

#include <vector>

#include "collective/message_tag.h"

namespace agoq {
namespace {

// Where each chunk starts in a buffer that holds them one after another.
std::vector<const void*> chunks_of(const void* buffer, const ChunkPlan& plan,
                                   const SegmentExchange& exchange) {
  std::vector<const void*> chunks;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const std::int64_t offset = exchange.value_bytes(plan.chunk_offset(rank));
    chunks.push_back(offset == 0 ? buffer : static_cast<const std::byte*>(buffer) + offset);
  }
  return chunks;
}

}  // namespace

AllReduce::AllReduce(Transport& transport, SegmentExchange& exchange, const ChunkPlan& plan,
                     const void* in, void* out)
    : ReduceScatter(transport, exchange, plan, chunks_of(in, plan, exchange),
                    const_cast<void*>(chunks_of(out, plan, exchange)[transport.rank()])),
      out_(static_cast<std::byte*>(out)) {}

void AllReduce::open(Step& step) {
  expect_pieces(step);
  for (const int peer : peers()) {
    const Extent theirs = extent(peer, step.index);
    if (theirs.count == 0) continue;
    const Ticket ticket = exchange_.expect_result(
        peer, theirs.count, message_tag(Phase::kResult, step.index), at(theirs));
    step.results.add(peer, ticket, exchange_.message_bytes(theirs.count));
  }
  send_pieces(step);
}

bool AllReduce::work(Step& step) {
  const bool summed = ReduceScatter::work(step);
  const bool taken = step.results.poll(transport_, [&](const ReceiveSet::Receive& result) {
    const Extent theirs = extent(result.peer, step.index);
    exchange_.take_result(result.ticket, theirs.count, at(theirs));
  });
  return summed || taken;
}

void AllReduce::make(const Sum& sum, std::int64_t step, const void* own, void* out) {
  exchange_.sum_and_send(sum.pieces, {}, own, extent(sum.chunk, step), out, peers(),
                         message_tag(Phase::kResult, step));
}

void* AllReduce::at(Extent extent) const {
  const std::int64_t offset = exchange_.value_bytes(extent.first_element);
  return offset == 0 ? out_ : out_ + offset;
}

}  // namespace agoq
