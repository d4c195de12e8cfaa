#include "collective/chunk_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "agoqcomm/error.h"
#include "collective/message_tag.h"

namespace agoq {

void check_segments(std::int64_t segments, std::int64_t longest, std::int64_t segment_numel) {
  if (segments <= kMaxSegments) return;
  throw Error(ErrorCode::kInvalidArgument,
              "a chunk of " + std::to_string(longest) + " elements makes " +
                  std::to_string(segments) + " segments of " + std::to_string(segment_numel) +
                  " elements, and a message tag counts up to " + std::to_string(kMaxSegments) +
                  ": raise Options::segment_numel");
}

ChunkPlan::ChunkPlan(std::vector<std::int64_t> counts, std::int64_t block,
                     std::int64_t segment_numel)
    : counts_(std::move(counts)) {
  // Any segment beyond the longest chunk is the same plan; the bound keeps the rounding below from
  // overflowing.
  const std::int64_t longest =
      std::max<std::int64_t>(*std::max_element(counts_.begin(), counts_.end()), 1);
  const std::int64_t wanted = std::clamp<std::int64_t>(segment_numel, 1, longest);
  segment_numel_ = (wanted + block - 1) / block * block;
  steps_ = (longest + segment_numel_ - 1) / segment_numel_;
  check_segments(steps_, longest, segment_numel_);
  offsets_.reserve(counts_.size() + 1);
  offsets_.push_back(0);
  for (const std::int64_t count : counts_) offsets_.push_back(offsets_.back() + count);
}

ChunkPlan ChunkPlan::balanced(std::int64_t count, int ranks, std::int64_t block,
                              std::int64_t segment_numel) {
  const std::int64_t blocks = count / block + (count % block != 0);
  std::vector<std::int64_t> counts(ranks);
  std::int64_t left = count;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t share = blocks / ranks + (rank < blocks % ranks);
    counts[rank] = std::min(share * block, left);
    left -= counts[rank];
  }
  return ChunkPlan(std::move(counts), block, segment_numel);
}

ChunkPlan ChunkPlan::given(std::span<const std::int64_t> counts, std::int64_t block,
                           std::int64_t segment_numel) {
  return ChunkPlan({counts.begin(), counts.end()}, block, segment_numel);
}

Segment ChunkPlan::segment(int rank, std::int64_t step) const {
  const std::int64_t offset = std::min(step * segment_numel_, counts_[rank]);
  return {offset, std::min(segment_numel_, counts_[rank] - offset)};
}

}  // namespace agoq
