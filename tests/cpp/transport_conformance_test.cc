// What every transport does alike.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <random>

#include "transport_group.h"

namespace agoq::test {
namespace {

class Conformance : public testing::TestWithParam<Kind> {
 protected:
  Kind kind() const { return GetParam(); }
};

std::uint64_t seed_of(int from, int to, std::size_t round) {
  return static_cast<std::uint64_t>(from) * 1'000'003 + static_cast<std::uint64_t>(to) * 10'007 +
         round;
}

/// Every rank sends `bytes` of its own to every other, from and into the callers' memory.
void exchange_caller_memory(Transport& transport, std::size_t bytes, std::size_t round, Tag tag) {
  std::vector<Ticket> tickets;
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  const auto peers = peers_of(transport);
  for (const int peer : peers) {
    got.emplace_back(bytes);
    tickets.push_back(transport.post_receive(peer, tag, got.back().data(), bytes));
  }
  for (const int peer : peers) {
    sent.push_back(pattern(bytes, seed_of(transport.rank(), peer, round)));
    tickets.push_back(
        transport.post_send(sent.back().data(), bytes, std::span<const int>(&peer, 1), tag));
  }
  complete(transport, tickets);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    EXPECT_EQ(got[i], pattern(bytes, seed_of(peers[i], transport.rank(), round))) << bytes;
  }
  for (const Ticket ticket : tickets) transport.release(ticket);
}

/// The same message from every rank to all others, through the transport's memory.
void exchange_send_buffers(Transport& transport, std::size_t bytes, std::size_t round, Tag tag) {
  const auto peers = peers_of(transport);
  SendBuffer buffer = transport.acquire(bytes);
  ASSERT_GE(buffer.bytes, bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 64, 0u);
  const auto data = pattern(bytes, seed_of(transport.rank(), -1, round));
  if (bytes != 0) std::memcpy(buffer.data, data.data(), bytes);
  transport.post_send(buffer, peers, tag);
  std::vector<Ticket> tickets;
  for (const int peer : peers) tickets.push_back(transport.post_receive(peer, tag, bytes));
  complete(transport, tickets);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const std::byte* got = transport.received(tickets[i]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got) % 64, 0u);
    const auto expected = pattern(bytes, seed_of(peers[i], -1, round));
    EXPECT_TRUE(bytes == 0 || std::memcmp(got, expected.data(), bytes) == 0) << bytes;
    transport.release(tickets[i]);
  }
  flush(transport);
}

TEST_P(Conformance, MovesMessagesOfEverySize) {
  constexpr std::size_t kSizes[] = {0,    1,     63,    64,     65,      4095,   4096,
                                    4097, 65535, 65536, 100007, 1 << 20, 5000001};
  run_group(kind(), 3, [&](Transport& transport) {
    EXPECT_EQ(transport.size(), 3);
    EXPECT_EQ(transport.name(), kind() == Kind::kTwoHosts ? "auto" : to_string(kind()));
    transport.begin_call(label_of(1));
    for (std::size_t round = 0; round < std::size(kSizes); ++round) {
      exchange_caller_memory(transport, kSizes[round], round, 2 * round);
      exchange_send_buffers(transport, kSizes[round], round, 2 * round + 1);
    }
  });
}

TEST_P(Conformance, FiveRanksOfThreads) {
  run_group(kind(), 5, [&](Transport& transport) {
    for (int call = 0; call < 20; ++call) {
      transport.begin_call(label_of(call));
      exchange_caller_memory(transport, 30000 + 977 * static_cast<std::size_t>(call), 1, 1);
      exchange_send_buffers(transport, 20000 + 977 * static_cast<std::size_t>(call), 2, 2);
    }
  });
}

TEST_P(Conformance, OneRankHasNobodyToTalkTo) {
  run_group(kind(), 1, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    transport.post_send(transport.acquire(100), {}, 1);
    EXPECT_TRUE(transport.sends_complete());
  });
}

TEST_P(Conformance, TagsMatchInAnyOrder) {
  constexpr Tag kCount = 40;
  constexpr std::size_t kBytes = 3000;
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    const int peer = 1 - transport.rank();
    if (transport.rank() == 0) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<Ticket> tickets;
      for (Tag tag = 0; tag < kCount; ++tag) {
        sent.push_back(pattern(kBytes, tag));
        tickets.push_back(
            transport.post_send(sent.back().data(), kBytes, std::span(&peer, 1), tag));
      }
      complete(transport, tickets);
      return;
    }
    for (Tag tag = kCount; tag-- > 0;) {
      const Ticket ticket = transport.post_receive(peer, tag, kBytes);
      complete(transport, ticket);
      EXPECT_EQ(std::memcmp(transport.received(ticket), pattern(kBytes, tag).data(), kBytes), 0);
      transport.release(ticket);
    }
  });
}

TEST_P(Conformance, AMessageMayComeBeforeItsReceive) {
  constexpr std::size_t kBytes = 50000;
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    const int peer = 1 - transport.rank();
    const auto data = pattern(kBytes, 7);
    if (transport.rank() == 0) {
      const Ticket first = transport.post_send(data.data(), kBytes, std::span(&peer, 1), 1);
      const Ticket second = transport.post_send(data.data(), kBytes, std::span(&peer, 1), 2);
      complete(transport, {first, second});
      return;
    }
    // The second message completes only after the first has come and waits somewhere.
    const Ticket second = transport.post_receive(peer, 2, kBytes);
    complete(transport, second);
    std::vector<std::byte> into(kBytes);
    const Ticket first = transport.post_receive(peer, 1, into.data(), kBytes);
    complete(transport, first);
    EXPECT_EQ(into, data);
  });
}

TEST_P(Conformance, ASendBufferForNobodyIsRecycled) {
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    constexpr std::size_t kBytes = 1 << 20;
    for (int i = 0; i < 3 * std::min(transport.send_buffer_limit(kBytes), 100); ++i) {
      transport.post_send(transport.acquire(kBytes), {}, 0);
    }
    EXPECT_TRUE(transport.sends_complete());
  });
}

TEST_P(Conformance, HoldsAsManySendBuffersAsItSays) {
  constexpr std::size_t kBytes = 100000;
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    const int peer = 1 - transport.rank();
    const int count = std::min(transport.send_buffer_limit(kBytes), 400);
    ASSERT_GE(count, 1);
    std::vector<SendBuffer> held;
    for (int i = 0; i < count; ++i) {
      held.push_back(transport.acquire(kBytes));
      std::memset(held.back().data, i, kBytes);
    }
    for (int i = 0; i < count; ++i) {
      transport.post_send(held[static_cast<std::size_t>(i)], std::span(&peer, 1),
                          static_cast<Tag>(i));
    }
    for (int i = 0; i < count; ++i) {
      const Ticket ticket = transport.post_receive(peer, static_cast<Tag>(i), kBytes);
      complete(transport, ticket);
      EXPECT_EQ(transport.received(ticket)[kBytes - 1], std::byte(i));
      transport.release(ticket);
    }
    flush(transport);
  });
}

TEST_P(Conformance, ManyCallsBackToBackWithASlowRank) {
  run_group(kind(), 3, [&](Transport& transport) {
    std::mt19937 random(static_cast<unsigned>(transport.rank()));
    for (int call = 0; call < 1000; ++call) {
      if (random() % 100 == 0) std::this_thread::sleep_for(1ms);
      transport.begin_call(label_of(call));
      const std::size_t bytes = static_cast<std::size_t>(call % 7) * 700;
      call % 2 != 0 ? exchange_caller_memory(transport, bytes, 1, 5)
                    : exchange_send_buffers(transport, bytes, 1, 5);
    }
  });
}

TEST_P(Conformance, APeerMayRunAheadByACall) {
  constexpr std::size_t kBytes = 10000;
  run_group(kind(), 2, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    const auto data = pattern(kBytes, 3);
    // Rank 0 only sends, so nothing holds it back; rank 1 gets each message in its own call.
    for (int call = 0; call < 50; ++call) {
      transport.begin_call(label_of(call));
      if (transport.rank() == 0) {
        complete(transport, transport.post_send(data.data(), kBytes, std::span(&peer, 1), 9));
      } else {
        std::vector<std::byte> into(kBytes);
        complete(transport, transport.post_receive(peer, 9, into.data(), kBytes));
        EXPECT_EQ(into, data);
      }
    }
  });
}

TEST_P(Conformance, ADifferentLabelIsReportedInFull) {
  run_group(kind(), 2, [&](Transport& transport) {
    const int peer = 1 - transport.rank();
    transport.begin_call(label_of(transport.rank()));
    const std::byte data{};
    transport.post_send(&data, 1, std::span(&peer, 1), 1);
    const Ticket ticket = transport.post_receive(peer, 1, 1);
    try {
      complete(transport, ticket);
      ADD_FAILURE() << "rank " << transport.rank() << " has seen no mismatch";
    } catch (const LabelMismatch& mismatch) {
      EXPECT_EQ(mismatch.peer, peer);
      EXPECT_EQ(mismatch.own, label_of(transport.rank()));
      EXPECT_EQ(mismatch.theirs, label_of(peer));
    }
  });
}

TEST_P(Conformance, ADifferentLengthIsAMismatch) {
  const auto data = pattern(100, 1);
  const auto early = pattern(10, 1);
  for (const bool posted_first : {true, false}) {
    run_group(kind(), 2, [&](Transport& transport) {
      const int peer = 1 - transport.rank();
      transport.begin_call(label_of(1));
      if (transport.rank() == 0) {
        transport.post_send(data.data(), 100, std::span(&peer, 1), 1);
        transport.post_send(early.data(), 10, std::span(&peer, 1), 2);
        return;
      }
      try {
        if (!posted_first) complete(transport, transport.post_receive(peer, 2, 10));
        complete(transport, transport.post_receive(peer, 1, 99));
        ADD_FAILURE() << "no mismatch seen";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
        EXPECT_EQ(error.peer(), peer);
        EXPECT_NE(std::string(error.what()).find("99"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("100"), std::string::npos) << error.what();
      }
    });
  }
}

TEST_P(Conformance, AbortWakesASleeper) {
  auto group = make_group(kind(), 2);
  Transport& transport = *group[0];
  transport.begin_call(label_of(1));
  const Ticket ticket = transport.post_receive(1, 1, 100);
  std::thread aborter([&] {
    std::this_thread::sleep_for(100ms);
    transport.abort("the user has had enough");
  });
  const auto start = Clock::now();
  try {
    for (;;) {
      EXPECT_FALSE(transport.test(ticket));
      transport.wait(Clock::now() + kPatience);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kAborted);
    EXPECT_NE(std::string(error.what()).find("the user has had enough"), std::string::npos);
  }
  EXPECT_LT(Clock::now() - start, 5s);
  aborter.join();
  EXPECT_THROW(transport.begin_call(label_of(2)), Error);
  EXPECT_THROW(transport.test(ticket), Error);
}

TEST_P(Conformance, WaitEndsAtItsDeadline) {
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    const Ticket ticket = transport.post_receive(1 - transport.rank(), 1, 100);
    const auto start = Clock::now();
    const auto deadline = start + 50ms;
    while (Clock::now() < deadline) {
      EXPECT_FALSE(transport.test(ticket));
      transport.wait(deadline);
    }
    EXPECT_LT(Clock::now() - start, 5s);
    EXPECT_FALSE(transport.test(ticket));
    // A deadline that has passed is no reason to wait.
    transport.wait(start);
  });
}

TEST_P(Conformance, CanBeDestroyedWithPostsPending) {
  const auto data = pattern(3 << 20, 1);
  run_group(kind(), 3, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    const auto peers = peers_of(transport);
    for (Tag tag = 0; tag < 4; ++tag) {
      transport.post_send(data.data(), data.size(), peers, tag);
      for (const int peer : peers) transport.post_receive(peer, 100 + tag, 1000);
    }
    transport.post_send(transport.acquire(1000), peers, 50);
    // A buffer that was never posted is the transport's to free, too.
    EXPECT_NE(transport.acquire(1000).data, nullptr);
  });
}

TEST_P(Conformance, APeerThatIsGoneIsNamedAfterWhatItSent) {
  auto group = make_group(kind(), 3);
  const auto data = pattern(20000, 5);
  for (auto& transport : group) transport->begin_call(label_of(1));
  const int to[] = {0};
  const Ticket sent = group[2]->post_send(data.data(), data.size(), to, 1);
  if (kind() != Kind::kInproc) complete(*group[2], sent);
  std::vector<std::byte> into(data.size());
  const Ticket first = group[0]->post_receive(2, 1, into.data(), into.size());
  // In one process the caller's memory is read by the receiver, so the sender stays for that.
  if (kind() == Kind::kInproc) complete(*group[0], first);
  group[2].reset();
  complete(*group[0], first);
  EXPECT_EQ(into, data);
  try {
    complete(*group[0], group[0]->post_receive(2, 2, 777));
    FAIL() << "the peer's end was not seen";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerFailed) << error.what();
    EXPECT_EQ(error.peer(), 2);
    EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(complete(*group[0], group[0]->post_receive(2, 3, 777)), Error)
      << "a failed transport stays failed";
}

TEST_P(Conformance, APeerThatIsDoneDoesNotDisturbTheOthers) {
  auto group = make_group(kind(), 3);
  for (auto& transport : group) transport->begin_call(label_of(1));
  group[2].reset();
  const auto data = pattern(1 << 20, 5);
  std::vector<std::byte> into(data.size());
  const int to[] = {1};
  const Ticket receive = group[1]->post_receive(0, 1, into.data(), into.size());
  const Ticket send = group[0]->post_send(data.data(), data.size(), to, 1);
  const auto deadline = Clock::now() + kPatience;
  bool received = false;
  bool sent = false;
  while ((!received || !sent) && Clock::now() < deadline) {
    sent = sent || group[0]->test(send);
    received = received || group[1]->test(receive);
  }
  EXPECT_TRUE(sent && received);
  EXPECT_EQ(into, data);
}

TEST_P(Conformance, OneThreadDrivesAllRanks) {
  constexpr int kSize = 4;
  constexpr std::size_t kBytes = 300000;
  auto group = make_group(kind(), kSize);
  std::vector<std::pair<int, Ticket>> open;
  const auto data = pattern(kBytes, 11);
  for (auto& transport : group) {
    transport->begin_call(label_of(1));
    const auto peers = peers_of(*transport);
    for (const int peer : peers) {
      open.emplace_back(transport->rank(), transport->post_receive(peer, 1, kBytes));
    }
    open.emplace_back(transport->rank(), transport->post_send(data.data(), kBytes, peers, 1));
  }
  const auto deadline = Clock::now() + kPatience;
  while (!open.empty() && Clock::now() < deadline) {
    std::erase_if(open, [&](const auto& entry) {
      return group[static_cast<std::size_t>(entry.first)]->test(entry.second);
    });
  }
  EXPECT_TRUE(open.empty());
}

std::size_t resident_bytes() {
  std::size_t total = 0;
  std::size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

TEST_P(Conformance, ABacklogIsHeldBackAndNotBuffered) {
  constexpr std::size_t kBytes = 1 << 20;
  constexpr Tag kCount = 200;
  auto group = make_group(kind(), 2);
  const auto data = pattern(kBytes, 13);
  std::vector<std::byte> into(kBytes);
  for (auto& transport : group) transport->begin_call(label_of(1));
  const std::size_t before = resident_bytes();
  const int to[] = {1};
  std::vector<Ticket> sends;
  for (Tag tag = 0; tag < kCount; ++tag) {
    sends.push_back(group[0]->post_send(data.data(), kBytes, to, tag));
  }
  // The receiver makes progress, but has posted nothing.
  const auto until = Clock::now() + 300ms;
  const Ticket unrelated = group[1]->post_receive(0, kCount + 1, 1);
  while (Clock::now() < until) {
    group[0]->test(sends.back());
    group[1]->test(unrelated);
  }
  EXPECT_FALSE(group[0]->test(sends.back()));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20));
#endif
  std::thread sender([&] { complete(*group[0], sends); });
  for (Tag tag = 0; tag < kCount; ++tag) {
    const Ticket ticket = group[1]->post_receive(0, tag, into.data(), kBytes);
    complete(*group[1], ticket);
    group[1]->release(ticket);
    ASSERT_EQ(std::memcmp(into.data(), data.data(), kBytes), 0) << tag;
  }
  sender.join();
}

TEST_P(Conformance, WrongArgumentsHarmNothing) {
  if (kind() == Kind::kInproc) GTEST_SKIP() << "inproc trusts its callers, who are in its process";
  run_group(kind(), 2, [&](Transport& transport) {
    const auto refused = [](const auto& call) {
      try {
        call();
        ADD_FAILURE() << "a wrong argument was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      }
    };
    transport.begin_call(label_of(1));
    const int peer = 1 - transport.rank();
    const int wrong[] = {2};
    refused([&] { transport.post_receive(2, 1, 10); });
    refused([&] { transport.post_receive(-1, 1, 10); });
    refused([&] { transport.post_receive(transport.rank(), 1, 10); });
    refused([&] { transport.post_send(&peer, sizeof peer, wrong, 1); });
    exchange_caller_memory(transport, 1000, 1, 1);
  });
}

TEST_P(Conformance, ThreeForkedProcesses) {
  if (kind() == Kind::kInproc) GTEST_SKIP() << "inproc ranks are threads of one process";
  const std::uint16_t port = free_port();
  Processes processes(3, [&](int rank) {
    auto store = make_tcp_store("127.0.0.1", port, rank, 3, kPatience);
    auto transport = make_transport(kind(), *store, rank, 3);
    store.reset();
    for (int call = 0; call < 50; ++call) {
      transport->begin_call(label_of(call));
      exchange_caller_memory(*transport, static_cast<std::size_t>(call) * 9001, 1, 1);
      exchange_send_buffers(*transport, static_cast<std::size_t>(call) * 5001, 2, 2);
    }
    if (testing::Test::HasFailure()) throw std::runtime_error("a message came out wrong");
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0) << rank;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         testing::Values(Kind::kInproc, Kind::kTcp, Kind::kShm, Kind::kAuto,
                                         Kind::kTwoHosts),
                         [](const auto& info) { return to_string(info.param); });

}  // namespace
}  // namespace agoq::test
