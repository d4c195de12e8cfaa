// What every transport does alike with messages: they arrive, whole and in their place.
#include "transport_conformance.h"

#include <random>

namespace agoq::test {
namespace {

TEST_P(Conformance, MovesMessagesOfEverySize) {
  constexpr std::size_t kSizes[] = {0,    1,     63,    64,     65,      4095,   4096,
                                    4097, 65535, 65536, 100007, 1 << 20, 5000001};
  run_group(kind(), 3, [&](Transport& transport) {
    EXPECT_EQ(transport.size(), std::min(3, ranks_at_hand()));
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
    // The receiver, too, may hold them all at once.
    std::vector<Ticket> received;
    for (int i = 0; i < count; ++i) {
      received.push_back(transport.post_receive(peer, static_cast<Tag>(i), kBytes));
    }
    complete(transport, received);
    for (int i = 0; i < count; ++i) {
      const Ticket ticket = received[static_cast<std::size_t>(i)];
      EXPECT_EQ(transport.received(ticket)[kBytes - 1], std::byte(i));
      transport.release(ticket);
    }
    flush(transport);
  });
}

TEST_P(Conformance, MessagesOfCallersMayAllBeHeldByTheReceiver) {
  constexpr std::size_t kBytes = 20000;
  constexpr Tag kCount = 60;
  const auto data = pattern(kBytes, 21);
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    const int peer = 1 - transport.rank();
    std::vector<Ticket> received;
    std::vector<Ticket> sent;
    for (Tag tag = 0; tag < kCount; ++tag) {
      received.push_back(transport.post_receive(peer, tag, kBytes));
      sent.push_back(transport.post_send(data.data(), kBytes, std::span(&peer, 1), tag));
    }
    complete(transport, received);
    complete(transport, sent);
    for (const Ticket ticket : received) {
      EXPECT_EQ(std::memcmp(transport.received(ticket), data.data(), kBytes), 0);
    }
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

TEST_P(Conformance, OneThreadDrivesAllRanks) {
  constexpr int kSize = 4;
  constexpr std::size_t kBytes = 300000;
  if (kind() == Kind::kMpi) GTEST_SKIP() << "a process is one rank of MPI";
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

TEST_P(Conformance, ThreeForkedProcesses) {
  if (kind() == Kind::kInproc) GTEST_SKIP() << "inproc ranks are threads of one process";
  if (kind() == Kind::kMpi) GTEST_SKIP() << "mpirun starts processes in every test";
  const std::uint16_t port = free_port();
  Processes processes(3, [&](int rank) {
    auto store = make_tcp_store("127.0.0.1", port, rank, 3, kPatience);
    auto transport = make_transport(kind(), *store, rank, 3);
    store.reset();
    for (int call = 0; call < 20; ++call) {
      transport->begin_call(label_of(call));
      exchange_caller_memory(*transport, static_cast<std::size_t>(call) * 9001, 1, 1);
      exchange_send_buffers(*transport, static_cast<std::size_t>(call) * 5001, 2, 2);
    }
    if (testing::Test::HasFailure()) throw std::runtime_error("a message came out wrong");
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), 0) << rank;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(kAllKinds), kind_of);

}  // namespace
}  // namespace agoq::test
