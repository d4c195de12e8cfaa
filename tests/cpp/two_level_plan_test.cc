// How chunks are cut into parts, and which rank of a node has to do with each.
#include "collective/two_level_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "two_level_testing.h"

namespace agoq::testing {
namespace {

constexpr std::int64_t kBlock = 128;

std::vector<std::int64_t> chunk_counts(const TwoLevelPlan& plan, const Nodes& nodes) {
  std::vector<std::int64_t> counts(nodes.size());
  for (int part = 0; part < plan.parts(); ++part) {
    EXPECT_EQ(plan.offset_in_chunk(part), counts[plan.owner(part)]);
    counts[plan.owner(part)] += plan.segments().chunk_count(part);
  }
  return counts;
}

TEST(TwoLevelPlan, PartsMakeUpTheChunksWholeBlocksAtATime) {
  for (const Nodes& nodes : kTopologies) {
    SCOPED_TRACE(name_of(nodes));
    for (const std::int64_t count : {0, 1, 127, 128, 129, 5000, 100007}) {
      const auto plan = TwoLevelPlan::balanced(count, Topology(nodes), kBlock, 1000);
      EXPECT_EQ(chunk_counts(plan, nodes), two_level_counts(count, nodes, kBlock));
      EXPECT_EQ(plan.segments().total(), count);
      std::vector<std::int64_t> given;
      for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        given.push_back(rank % 2 == 0 ? count : 77 * static_cast<std::int64_t>(rank));
      }
      const auto stated = TwoLevelPlan::given(given, Topology(nodes), kBlock, 1000);
      EXPECT_EQ(chunk_counts(stated, nodes), given);
      for (int part = 0; part < stated.parts(); ++part) {
        const bool whole = stated.offset_in_chunk(part) % kBlock == 0;
        EXPECT_TRUE(whole || stated.offset_in_chunk(part) == given[stated.owner(part)]);
      }
    }
  }
}

TEST(TwoLevelPlan, CollectorsAreThoseOfTheContract) {
  for (const Nodes& nodes : kTopologies) {
    SCOPED_TRACE(name_of(nodes));
    for (const std::int64_t count : {1, 300, 5000, 100007}) {
      const auto plan = TwoLevelPlan::balanced(count, Topology(nodes), kBlock, 1000);
      const auto counts = two_level_counts(count, nodes, kBlock);
      for (int part = 0; part < plan.parts(); ++part) {
        if (plan.segments().chunk_count(part) == 0) continue;
        const int owner = plan.owner(part);
        const std::int64_t blocks = (counts[owner] + kBlock - 1) / kBlock;
        for (int node = 0; node < node_count(nodes); ++node) {
          EXPECT_EQ(plan.collector(part, node),
                    collector_of(nodes, owner, node, plan.offset_in_chunk(part) / kBlock, blocks));
        }
      }
    }
  }
}

TEST(TwoLevelPlan, NodesOfEqualSizePairRanksOfEqualNumbers) {
  const Nodes nodes = {0, 1, 0, 1, 0, 1};
  const auto plan = TwoLevelPlan::balanced(100007, Topology(nodes), kBlock, 1000);
  EXPECT_EQ(plan.parts(), 6);
  for (int part = 0; part < 6; ++part) {
    EXPECT_EQ(plan.owner(part), part);
    EXPECT_EQ(plan.collector(part, 0), part / 2 * 2);
    EXPECT_EQ(plan.collector(part, 1), part / 2 * 2 + 1);
  }
}

TEST(TwoLevelPlan, RanksOfANodeCollectAboutAsMuchAsTheOthers) {
  const std::int64_t count = 1 << 20;
  for (const Nodes& nodes : kTopologies) {
    if (node_count(nodes) == 1) continue;
    SCOPED_TRACE(name_of(nodes));
    const auto plan = TwoLevelPlan::balanced(count, Topology(nodes), kBlock, 1000);
    std::vector<std::int64_t> collected(nodes.size());
    for (int part = 0; part < plan.parts(); ++part) {
      for (int node = 0; node < node_count(nodes); ++node) {
        collected[plan.collector(part, node)] += plan.segments().chunk_count(part);
      }
    }
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const double fair = static_cast<double>(count) / std::ssize(ranks_of(nodes, nodes[rank]));
      EXPECT_NEAR(collected[rank] / fair, 1, 0.01);
    }
  }
}

TEST(TwoLevelPlan, DoesNotOverflow) {
  const std::int64_t huge = std::int64_t{1} << 61;
  const Nodes nodes = {0, 0, 0, 1};
  const auto plan = TwoLevelPlan::balanced(huge, Topology(nodes), kBlock, huge);
  EXPECT_EQ(chunk_counts(plan, nodes), two_level_counts(huge, nodes, kBlock));
}

}  // namespace
}  // namespace agoq::testing
