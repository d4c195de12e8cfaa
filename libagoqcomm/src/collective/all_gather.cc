#include "collective/all_gather.h"

#include <utility>

#include "collective/message_tag.h"

namespace agoq {

AllGather::AllGather(Transport& transport, SegmentExchange& exchange, ChunkPlan plan,
                     const void* in, std::span<void* const> out)
    : FlatWindow(transport, exchange, std::move(plan)), in_(in), out_(out.begin(), out.end()) {}

void AllGather::open(Step& step) {
  const Tag tag = message_tag(Phase::kResult, step.index);
  for (const int peer : peers()) {
    if (!travels(peer, step.index)) continue;
    const std::int64_t count = extent(peer, step.index).count;
    step.results.add(peer, exchange_.expect_result(peer, count, tag, at(peer, step.index)),
                     exchange_.message_bytes(count));
  }
  if (!travels(rank(), step.index)) return;
  const std::int64_t offset = exchange_.value_bytes(plan_.segment(rank(), step.index).offset);
  const void* values = offset == 0 ? in_ : static_cast<const std::byte*>(in_) + offset;
  exchange_.send_result(values, extent(rank(), step.index), peers(), tag, at(rank(), step.index));
}

bool AllGather::work(Step& step) {
  return step.results.poll(transport_, [&](const ReceiveSet::Receive& result) {
    exchange_.take_result(result.ticket, extent(result.peer, step.index).count,
                          at(result.peer, step.index));
  });
}

void* AllGather::at(int rank, std::int64_t step) const {
  const std::int64_t offset = exchange_.value_bytes(plan_.segment(rank, step).offset);
  return offset == 0 ? out_[rank] : static_cast<std::byte*>(out_[rank]) + offset;
}

}  // namespace agoq
