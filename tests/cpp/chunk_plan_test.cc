#include "collective/chunk_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "agoqcomm/error.h"
#include "collective/message_tag.h"

namespace agoq {
namespace {

void expect_covers_everything(const ChunkPlan& plan, std::int64_t block) {
  std::int64_t offset = 0;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    EXPECT_EQ(plan.chunk_offset(rank), offset);
    std::int64_t in_chunk = 0;
    for (std::int64_t step = 0; step < plan.steps(); ++step) {
      const Segment segment = plan.segment(rank, step);
      EXPECT_EQ(segment.offset, in_chunk);
      EXPECT_LE(segment.count, plan.segment_numel());
      in_chunk += segment.count;
      // Only the last segment of a chunk may cut a block short.
      EXPECT_TRUE(in_chunk == plan.chunk_count(rank) || segment.count % block == 0);
    }
    EXPECT_EQ(in_chunk, plan.chunk_count(rank));
    offset += in_chunk;
  }
  EXPECT_EQ(offset, plan.total());
}

TEST(ChunkPlan, BalancedChunksAreWholeBlocksAndDifferByOneAtMost) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::int64_t count : {0, 1, 31, 127, 128, 129, 1000, 4097, 100007}) {
      for (const std::int64_t segment : {1, 128, 1000, 65536}) {
        const ChunkPlan plan = ChunkPlan::balanced(count, ranks, 128, segment);
        EXPECT_EQ(plan.total(), count);
        expect_covers_everything(plan, 128);
        const std::int64_t blocks = (count + 127) / 128;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::int64_t own = (plan.chunk_count(rank) + 127) / 128;
          EXPECT_GE(own, blocks / ranks);
          EXPECT_LE(own, (blocks + ranks - 1) / ranks);
        }
      }
    }
  }
}

TEST(ChunkPlan, GivenChunksKeepTheirCounts) {
  const std::vector<std::int64_t> counts = {0, 129, 5000, 1};
  const ChunkPlan plan = ChunkPlan::given(counts, 128, 300);
  expect_covers_everything(plan, 128);
  EXPECT_EQ(plan.segment_numel(), 384);
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(plan.chunk_count(rank), counts[rank]);
  EXPECT_EQ(plan.steps(), 14);
}

TEST(ChunkPlan, AnEmptyCallStillHasTheStepThatComparesLabels) {
  EXPECT_EQ(ChunkPlan::balanced(0, 3, 128, 65536).steps(), 1);
  EXPECT_EQ(ChunkPlan::balanced(0, 3, 128, 65536).segment(2, 0).count, 0);
}

TEST(ChunkPlan, CountsBeyondThirtyTwoBits) {
  const std::int64_t count = (std::int64_t{1} << 33) + 77;
  const ChunkPlan plan = ChunkPlan::balanced(count, 3, 128, 65536);
  EXPECT_EQ(plan.total(), count);
  EXPECT_EQ(plan.chunk_offset(2) + plan.chunk_count(2), count);
  const Segment last = plan.segment(0, plan.steps() - 1);
  EXPECT_EQ(last.offset + last.count, plan.chunk_count(0));
  // No overflow where the segment is as long as a number can say.
  EXPECT_EQ(ChunkPlan::balanced(count, 1, 128, INT64_MAX).steps(), 1);
}

TEST(ChunkPlan, MoreSegmentsThanATagCountsAreRefused) {
  const std::int64_t most = kMaxSegments * 32;
  EXPECT_EQ(ChunkPlan::balanced(most, 1, 32, 32).steps(), kMaxSegments);
  try {
    ChunkPlan::balanced(most + 1, 1, 32, 32);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("segment_numel"), std::string::npos);
  }
}

}  // namespace
}  // namespace agoq
