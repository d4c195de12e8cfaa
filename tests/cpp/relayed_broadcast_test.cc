// Broadcast of much: every rank gets the root's bytes, and the root sends them about twice.
#include "collective/relayed_broadcast.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "group_testing.h"

namespace agoq::testing {
namespace {

constexpr std::int64_t kCount = (1 << 18) + 4097;  // Of fp32: no multiple of ranks or segments.
constexpr std::int64_t kBytes = 4 * kCount;

Options many_segments() {
  Options options;
  options.segment_numel = 40'000;
  options.timeout = std::chrono::seconds(60);
  return options;
}

std::vector<std::uint32_t> values_of(int root) {
  std::vector<std::uint32_t> values(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<std::uint32_t>(i * 2654435761u) + static_cast<std::uint32_t>(root);
  }
  return values;
}

TEST(RelayedBroadcast, OnlyWhatTheRootsLinkWouldBeBusyWithIsRelayed) {
  EXPECT_TRUE(is_relayed("tcp", 3, 1 << 20));
  EXPECT_FALSE(is_relayed("tcp", 3, (1 << 20) - 1));
  EXPECT_FALSE(is_relayed("tcp", 2, 1 << 30));
  EXPECT_FALSE(is_relayed("shm", 8, 1 << 30));
}

TEST(RelayedBroadcast, EveryRankGetsTheRootsBytesAndSendsItsShare) {
  for (const int size : {3, 4, 5}) {
    for (int root = 0; root < size; ++root) {
      const auto expected = values_of(root);
      expect_success(
          run_ranks(make_slow_group(size, 0, 7 + root), many_segments(), [&](Communicator& comm) {
            ASSERT_TRUE(is_relayed("inproc", size, kBytes));
            auto data = comm.rank() == root ? expected : std::vector<std::uint32_t>(kCount);
            comm.broadcast(data.data(), kCount, DataType::kFloat32, root);
            EXPECT_TRUE(data == expected);
            const std::int64_t sent = of(comm.stats(), Operation::kBroadcast).wire_bytes;
            // The root: p - 1 chunks to their owners, and its own to all. An owner: to all but the
            // root.
            const std::int64_t chunks = comm.rank() == root ? 2 * (size - 1) : size - 2;
            EXPECT_NEAR(sent, chunks * kBytes / size, chunks * 64 * 4);
          }));
    }
  }
}

TEST(RelayedBroadcast, RanksThatDifferInTheCountAreToldSo) {
  const auto outcomes =
      run_ranks(make_slow_group(3, 0, 3), many_segments(), [&](Communicator& comm) {
        std::vector<float> data(kCount);
        comm.broadcast(data.data(), kCount - comm.rank() / 2, DataType::kFloat32, 0);
      });
  bool told = false;
  for (const auto& outcome : outcomes) told |= outcome.error == ErrorCode::kMismatch;
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace agoq::testing
