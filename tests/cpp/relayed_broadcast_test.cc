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

/// Threads of one process that count as joined by links.
class Linked final : public SlowTransport {
 public:
  using SlowTransport::SlowTransport;
  std::string_view name() const override { return "tcp"; }
};

std::vector<std::unique_ptr<Transport>> make_linked_group(int size, unsigned seed) {
  auto transports = make_inproc_group(size);
  for (auto& transport : transports) {
    transport = std::make_unique<Linked>(std::move(transport), 0, seed);
  }
  return transports;
}

Options many_segments() {
  Options options;
  options.segment_numel = 10'000;
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
  const Topology beside = Topology::one_node(3);
  const Topology apart{std::vector{0, 1, 2}};
  for (const std::string_view transport : {"tcp", "mpi", "gloo"}) {
    EXPECT_TRUE(is_relayed(transport, beside, 512 << 10)) << transport;
    EXPECT_TRUE(is_relayed(transport, apart, 512 << 10)) << transport;
  }
  EXPECT_FALSE(is_relayed("tcp", apart, (512 << 10) - 1));
  EXPECT_FALSE(is_relayed("tcp", Topology::one_node(2), 1 << 30));
}

TEST(RelayedBroadcast, RanksThatShareAMemoryDoNotRelay) {
  const Topology beside = Topology::one_node(8);
  for (const std::string_view transport : {"shm", "inproc", "auto"}) {
    EXPECT_FALSE(is_relayed(transport, beside, 1 << 30)) << transport;
  }
  EXPECT_TRUE(is_relayed("auto", Topology(std::vector{0, 1, 1}), 1 << 30));

  const auto expected = values_of(0);
  expect_success(run_ranks(make_inproc_group(3), many_segments(), [&](Communicator& comm) {
    auto data = comm.rank() == 0 ? expected : std::vector<std::uint32_t>(kCount);
    comm.broadcast(data.data(), kCount, DataType::kFloat32, 0);
    EXPECT_TRUE(data == expected);
    const std::int64_t sent = of(comm.stats(), Operation::kBroadcast).wire_bytes;
    EXPECT_EQ(sent, comm.rank() == 0 ? 2 * kBytes : 0);
  }));
}

TEST(RelayedBroadcast, EveryRankGetsTheRootsBytesAndSendsItsShare) {
  for (const int size : {3, 4, 5}) {
    for (int root = 0; root < size; ++root) {
      const auto expected = values_of(root);
      expect_success(
          run_ranks(make_linked_group(size, 7 + root), many_segments(), [&](Communicator& comm) {
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
      run_ranks(make_linked_group(3, 3), many_segments(), [&](Communicator& comm) {
        std::vector<float> data(kCount);
        comm.broadcast(data.data(), kCount - comm.rank() / 2, DataType::kFloat32, 0);
      });
  bool told = false;
  for (const auto& outcome : outcomes) told |= outcome.error == ErrorCode::kMismatch;
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace agoq::testing
