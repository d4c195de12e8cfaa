// Errors of calls in two levels name the rank that is at fault, on every rank.
#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include "two_level_testing.h"

namespace agoq::testing {
namespace {

const Nodes kNodes = {0, 0, 1, 1};

Options two_levels() {
  Options options = quantize_all();
  options.algorithm = Algorithm::kTwoLevel;
  options.timeout = std::chrono::milliseconds(300);
  return options;
}

void all_reduce(Communicator& comm, std::int64_t count) {
  std::vector<float> data(count, 1.0f);
  comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kSum);
}

TEST(TwoLevelFailure, ALateRankIsNamedByAllOthersAlsoFromAnotherNode) {
  struct AtEnd {
    ~AtEnd() { latch.count_down(); }
    std::latch& latch;
  };
  Options options = two_levels();
  options.timeout = std::chrono::seconds(1);
  // Only rank 3 is late: the others call together, and it is there until all of them have failed.
  std::latch begun(3);
  std::latch ended(3);
  const auto outcomes = run_ranks(
      make_inproc_group(4), options,
      [&](Communicator& comm) {
        if (comm.rank() == 3) {
          ended.wait();
          return;
        }
        const AtEnd at_end{ended};
        begun.arrive_and_wait();
        all_reduce(comm, 5000);
      },
      Topology(kNodes));
  int timeouts = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Outcome& outcome = outcomes[rank];
    EXPECT_NE(outcome.words.find("waiting for rank 3"), std::string::npos) << outcome.words;
    // Whoever's time is not quite up when the first gives up hears of it from that rank.
    if (outcome.error != ErrorCode::kTimeout) continue;
    EXPECT_EQ(outcome.peer, 3) << outcome.words;
    ++timeouts;
  }
  EXPECT_GE(timeouts, 1);
}

TEST(TwoLevelFailure, ARankThatCallsSomethingElseIsFoundFromEveryNode) {
  const auto outcomes = run_ranks(
      make_inproc_group(4), two_levels(),
      [](Communicator& comm) { all_reduce(comm, comm.rank() == 3 ? 5001 : 5000); },
      Topology(kNodes));
  int named = 0;
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.error);
    const bool mismatch = outcome.error == ErrorCode::kMismatch;
    // Whoever met a rank that had already given up says that instead.
    EXPECT_TRUE(mismatch || outcome.error == ErrorCode::kPeerFailed) << outcome.words;
    named += mismatch && outcome.words.find("5001") != std::string::npos;
  }
  EXPECT_GE(named, 1);
}

TEST(TwoLevelFailure, RanksThatSeeAnotherTopologyOrAlgorithmDoNotRunTogether) {
  const auto run = [](const Topology& odd_topology, Algorithm odd_algorithm) {
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (auto& transport : make_inproc_group(4)) {
      const bool odd = transport->rank() == 3;
      Options options = two_levels();
      if (odd) options.algorithm = odd_algorithm;
      ranks.push_back(std::make_unique<Communicator>(std::move(transport), options,
                                                     odd ? odd_topology : Topology(kNodes)));
    }
    std::vector<Outcome> outcomes(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back(
          [&, rank] { outcomes[rank] = outcome_of([&] { all_reduce(*ranks[rank], 5000); }); });
    }
    for (std::thread& thread : threads) thread.join();
    std::string words;
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.error);
      if (outcome.error == ErrorCode::kMismatch) words += outcome.words + "\n";
    }
    return words;
  };
  const std::string topology = run(Topology(std::vector<int>{0, 1, 0, 1}), Algorithm::kTwoLevel);
  EXPECT_NE(topology.find("divided otherwise"), std::string::npos) << topology;
  const std::string algorithm = run(Topology(kNodes), Algorithm::kFlat);
  EXPECT_NE(algorithm.find("in two levels"), std::string::npos) << algorithm;
}

TEST(TwoLevelFailure, TooLittleRoomIsSaidBeforeAnythingIsSent) {
  class Roomless final : public SlowTransport {
   public:
    using SlowTransport::SlowTransport;
    int send_buffer_limit(std::size_t) const override { return 2; }
  };
  std::vector<std::unique_ptr<Transport>> transports = make_inproc_group(4);
  for (auto& transport : transports) {
    transport = std::make_unique<Roomless>(std::move(transport), -1, 1);
  }
  const auto outcomes = run_ranks(
      std::move(transports), two_levels(), [](Communicator& comm) { all_reduce(comm, 5000); },
      Topology(kNodes));
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, ErrorCode::kSystem);
    EXPECT_NE(outcome.words.find("lower Options::segment_numel"), std::string::npos)
        << outcome.words;
  }
}

}  // namespace
}  // namespace agoq::testing
