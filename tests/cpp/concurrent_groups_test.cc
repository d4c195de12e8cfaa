// Groups of one process are independent: one that waits for a late rank holds up no other.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "agoqcomm/communicator.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

constexpr std::int64_t kCount = 300'000;  // several segments, each long enough for two threads

class ConcurrentGroups : public ::testing::TestWithParam<Kind> {};

std::vector<std::unique_ptr<Communicator>> make_communicators(Kind kind, const std::string& name) {
  Options options;
  options.timeout = kPatience;
  options.codec_threads = 2;
  std::vector<std::unique_ptr<Communicator>> communicators;
  TransportConfig config;
  config.name = name;
  for (auto& transport : make_group(kind, 2, config)) {
    communicators.push_back(std::make_unique<Communicator>(std::move(transport), options));
  }
  return communicators;
}

void all_reduce(Communicator& communicator, float value) {
  std::vector<float> values(static_cast<std::size_t>(kCount), value);
  communicator.all_reduce(values.data(), values.data(), kCount, DataType::kFloat32, ReduceOp::kSum);
  EXPECT_EQ(values.front(), values.back());
  EXPECT_NEAR(values.front(), 2 * value, 0.02f * value);
}

TEST_P(ConcurrentGroups, OneThatWaitsForALateRankHoldsUpNoOther) {
  const auto waiting = make_communicators(GetParam(), "waiting");
  const auto busy = make_communicators(GetParam(), "busy");
  std::atomic<bool> done{false};
  std::thread early([&] {
    all_reduce(*waiting[0], 1.0f);
    done = true;
  });
  // Rank 0 of the one group has sent and waits; now all of the other group's calls run.
  run_threads(2, [&](int rank) {
    for (int call = 0; call < 30; ++call) {
      all_reduce(*busy[static_cast<std::size_t>(rank)], static_cast<float>(call + 1));
    }
  });
  EXPECT_FALSE(done) << "the late rank has not called yet";
  all_reduce(*waiting[1], 1.0f);
  early.join();
  EXPECT_TRUE(done);
}

INSTANTIATE_TEST_SUITE_P(Transports, ConcurrentGroups,
                         ::testing::Values(Kind::kInproc, Kind::kTcp, Kind::kShm, Kind::kAuto),
                         [](const auto& info) { return to_string(info.param); });

TEST(CodecThreadsOfAGroup, ChangeNoResult) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3, 7}) {
    Options options;
    options.codec_threads = threads;
    auto group = make_inproc_group(3);
    std::vector<float> of_rank_1(static_cast<std::size_t>(kCount));
    run_threads(3, [&](int rank) {
      Communicator communicator(std::move(group[static_cast<std::size_t>(rank)]), options);
      std::vector<float> values(static_cast<std::size_t>(kCount));
      for (std::int64_t i = 0; i < kCount; ++i) {
        values[static_cast<std::size_t>(i)] = static_cast<float>((i * (rank + 3)) % 1009) - 504.0f;
      }
      communicator.all_reduce(values.data(), values.data(), kCount, DataType::kFloat32,
                              ReduceOp::kAvg);
      if (rank == 1) of_rank_1 = values;
    });
    results.push_back(of_rank_1);
    EXPECT_EQ(results.back(), results.front()) << threads << " threads";
  }
}

TEST(CodecThreadsOfAGroup, AreDescribed) {
  Options options;
  options.codec_threads = 3;
  const Communicator several(std::move(make_inproc_group(2)[0]), options);
  EXPECT_NE(several.describe().find("on 3 threads"), std::string::npos) << several.describe();
  options.codec_threads = 1;
  const Communicator one(std::move(make_inproc_group(2)[0]), options);
  EXPECT_EQ(one.describe().find("threads"), std::string::npos) << one.describe();
}

}  // namespace
}  // namespace agoq::test
