// Where memory cannot be shared: every rank learns it alike, and auto turns to tcp.
#include <gtest/gtest.h>

#include <cstring>

#include "transport_group.h"

namespace agoq::test {
namespace {

TransportConfig config_of(int rank, int without_memory) {
  TransportConfig config;
  config.shared_bytes = rank == without_memory ? std::size_t{1} << 50 : std::size_t{1} << 20;
  return config;
}

TEST(ShmFallback, OneRankWithoutMemoryIsEveryRanksError) {
  MemoryStore store;
  std::vector<std::string> words(3);
  run_threads(3, [&](int rank) {
    try {
      make_shm_transport(store, rank, 3, config_of(rank, 1));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      words[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_NE(words[0].find("rank 1"), std::string::npos) << words[0];
  EXPECT_EQ(words[0], words[1]);
  EXPECT_EQ(words[0], words[2]);
}

TEST(ShmFallback, AutoTurnsToTcp) {
  MemoryStore store;
  std::vector<std::unique_ptr<Transport>> group(3);
  run_threads(3, [&](int rank) {
    group[static_cast<std::size_t>(rank)] = make_auto_transport(store, rank, 3, config_of(rank, 2));
  });
  run_threads(3, [&](int rank) {
    Transport& transport = *group[static_cast<std::size_t>(rank)];
    transport.begin_call(label_of(1));
    SendBuffer buffer = transport.acquire(5000);
    std::memset(buffer.data, rank, 5000);
    transport.post_send(buffer, peers_of(transport), 1);
    for (const int peer : peers_of(transport)) {
      const Ticket ticket = transport.post_receive(peer, 1, 5000);
      complete(transport, ticket);
      EXPECT_EQ(transport.received(ticket)[4999], std::byte(peer));
      transport.release(ticket);
    }
    flush(transport);
  });
}

TEST(ShmFallback, RanksOfTwoHostsShareNoMemory) {
  MemoryStore store;
  run_threads(2, [&](int rank) {
    TwoHostsStore two_hosts(store, rank);
    try {
      make_shm_transport(two_hosts, rank, 2);
      ADD_FAILURE() << "memory was shared between hosts";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_NE(std::string(error.what()).find("auto"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace agoq::test
