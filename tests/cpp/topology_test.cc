// Topology: how ranks are told apart by node.
#include "agoqcomm/topology.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "group_testing.h"

namespace agoq::testing {
namespace {

TEST(Topology, NumbersNodesByTheirLowestRankAndRanksWithinThem) {
  const std::vector<std::string> names = {"b", "a", "b", "c", "a", "b"};
  const Topology topology = Topology::from_names(names);
  EXPECT_EQ(topology, Topology(std::vector<int>{7, -3, 7, 0, -3, 7}));
  EXPECT_EQ(topology.size(), 6);
  EXPECT_EQ(topology.nodes(), 3);
  EXPECT_EQ(topology.ranks_of(0), (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(topology.ranks_of(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(topology.ranks_of(2), (std::vector<int>{3}));
  EXPECT_EQ(topology.node_of(4), 1);
  EXPECT_EQ(topology.local_rank(5), 2);
  EXPECT_EQ(topology.describe(), "3 nodes of 3, 2 and 1 ranks");
}

TEST(Topology, HasTwoLevelsWhereThereAreSeveralOfBoth) {
  const auto of = [](std::vector<int> nodes) { return Topology(nodes); };
  EXPECT_TRUE(of({0, 0, 1, 1}).is_two_level());
  EXPECT_TRUE(of({0, 1, 1}).is_two_level());
  EXPECT_FALSE(of({0, 1, 2}).is_two_level());
  EXPECT_FALSE(of({5, 5, 5}).is_two_level());
  EXPECT_FALSE(of({0}).is_two_level());
  EXPECT_EQ(of({0, 0, 1, 1}).describe(), "2 nodes of 2 ranks");
  EXPECT_EQ(of({0}).describe(), "1 node of 1 rank");
  EXPECT_EQ(Topology::one_node(3), of({0, 0, 0}));
  EXPECT_FALSE(of({0, 0, 1}) == of({0, 1, 1}));
}

TEST(Topology, IsOfAtLeastOneRank) {
  for (const int size : {0, -1}) {
    EXPECT_EQ(outcome_of([&] { Topology::one_node(size); }).error, ErrorCode::kInvalidArgument);
  }
}

TEST(Topology, IsOfAsManyRanksAsTheTransport) {
  const Outcome outcome = outcome_of(
      [] { Communicator(std::move(make_inproc_group(2)[0]), Options(), Topology::one_node(3)); });
  EXPECT_EQ(outcome.error, ErrorCode::kInvalidArgument);
  EXPECT_NE(outcome.words.find("3 ranks and the transport 2"), std::string::npos) << outcome.words;
}

TEST(NodeIdentity, IsTheHostUnlessTheEnvironmentNamesANode) {
  ::unsetenv("AGOQ_NODE_ID");
  const std::string host = node_identity();
  EXPECT_FALSE(host.empty());
  EXPECT_EQ(node_identity(), host);
  ::setenv("AGOQ_NODE_ID", "rack 3", 1);
  const std::string named = node_identity();
  ::setenv("AGOQ_NODE_ID", "rack 4", 1);
  const std::string other = node_identity();
  ::setenv("AGOQ_NODE_ID", "", 1);
  EXPECT_EQ(node_identity(), host);
  ::unsetenv("AGOQ_NODE_ID");
  EXPECT_NE(named, host);
  EXPECT_NE(named, other);
}

TEST(Describe, SaysTopologyAndAlgorithmAndWhy) {
  const auto described = [](std::vector<int> nodes, Algorithm algorithm) {
    Options options;
    options.algorithm = algorithm;
    auto transports = make_inproc_group(static_cast<int>(nodes.size()));
    return Communicator(std::move(transports[0]), options, Topology(nodes)).describe();
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(described({0, 0, 1, 1}, Algorithm::kAuto),
         "topology 2 nodes of 2 ranks, algorithm two_level (several ranks on a node), but flat for "
         "exact calls of less than 65536 bytes\n");
  expect(described({0, 0, 1, 1}, Algorithm::kFlat), "2 ranks, algorithm flat (by option)\n");
  expect(described({0, 0, 1}, Algorithm::kTwoLevel), "algorithm two_level (by option)\n");
  expect(described({0, 0}, Algorithm::kTwoLevel), "algorithm flat (all ranks share a node)\n");
  expect(described({0, 1}, Algorithm::kAuto), "algorithm flat (every rank has a node of its own)");
}

}  // namespace
}  // namespace agoq::testing
