// The store that rank 0 serves.
#include <gtest/gtest.h>

#include "transport/mesh/endpoint.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

TEST(TcpStore, EveryRankSeesWhatAnyRankSets) {
  const std::uint16_t port = free_port();
  run_threads(4, [&](int rank) {
    auto store = make_tcp_store("127.0.0.1", port, rank, 4, kPatience);
    store->set("key/" + std::to_string(rank), std::string(1, '\0') + std::to_string(rank));
    for (int other = 0; other < 4; ++other) {
      EXPECT_EQ(store->get("key/" + std::to_string(other), Clock::now() + kPatience),
                std::string(1, '\0') + std::to_string(other));
    }
    EXPECT_EQ(store->address(), "127.0.0.1:" + std::to_string(port));
  });
}

TEST(TcpStore, AGetWaitsForTheKeyAndNamesItWhenItDoesNotCome) {
  const std::uint16_t port = free_port();
  run_threads(2, [&](int rank) {
    auto store = make_tcp_store("127.0.0.1", port, rank, 2, kPatience);
    if (rank == 0) {
      std::this_thread::sleep_for(100ms);
      store->set("late", "here");
      store->get("over", Clock::now() + kPatience);
      return;
    }
    EXPECT_EQ(store->get("late", Clock::now() + kPatience), "here");
    try {
      store->get("never", Clock::now() + 100ms);
      ADD_FAILURE() << "a key that nobody set was there";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_NE(std::string(error.what()).find("never"), std::string::npos) << error.what();
    }
    store->set("over", "");
  });
}

TEST(TcpStore, ValuesAndKeysAreBounded) {
  auto store = make_tcp_store("127.0.0.1", free_port(), 0, 1, kPatience);
  store->set("large", std::string(64 << 10, 'x'));
  EXPECT_EQ(store->get("large", Clock::now() + kPatience).size(), 64u << 10);
  EXPECT_THROW(store->set("larger", std::string((64 << 10) + 1, 'x')), Error);
  EXPECT_THROW(store->set("", "value"), Error);
  EXPECT_THROW(store->set(std::string(5000, 'k'), "value"), Error);
}

TEST(TcpStore, AStrangerIsDroppedAndTheRanksGoOn) {
  const std::uint16_t port = free_port();
  auto store = make_tcp_store("127.0.0.1", port, 0, 1, kPatience);
  const Endpoint target = Endpoint::inet("127.0.0.1", port);
  UniqueFd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(stranger.get(), target.address(), target.bytes()), 0);
  const auto bytes = pattern(4096, 1);
  ASSERT_GT(::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  char answer;
  EXPECT_LE(::recv(stranger.get(), &answer, 1, 0), 0);
  store->set("key", "value");
  EXPECT_EQ(store->get("key", Clock::now() + kPatience), "value");
}

TEST(TcpStore, ARankWithoutAServerSaysWhereItLooked) {
  const std::uint16_t port = free_port();
  try {
    make_tcp_store("127.0.0.1", port, 1, 2, 200ms);
    FAIL() << "a store was reached that nobody serves";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_NE(std::string(error.what()).find(std::to_string(port)), std::string::npos);
  }
}

}  // namespace
}  // namespace agoq::test
