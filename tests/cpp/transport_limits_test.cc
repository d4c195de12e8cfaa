// What every transport does alike where something is wrong, late, gone or too much.
#include <fstream>

#include "transport_conformance.h"

namespace agoq::test {
namespace {

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
  run_group(kind(), 2, [&](Transport& transport) {
    transport.begin_call(label_of(1));
    if (transport.rank() == 1) return;
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
  });
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
  if (ranks_at_hand() < 3) GTEST_SKIP() << "needs 3 ranks";
  const auto data = pattern(20000, 5);
  run_members(kind(), 3, [&](Member& member) {
    Transport& transport = *member.transport;
    const int rank = transport.rank();
    transport.begin_call(label_of(1));
    std::vector<std::byte> into(data.size());
    Ticket first = 0;
    if (rank == 0) first = transport.post_receive(2, 1, into.data(), into.size());
    if (rank == 2) {
      const int to[] = {0};
      const Ticket sent = transport.post_send(data.data(), data.size(), to, 1);
      if (kind() != Kind::kInproc) complete(transport, sent);
    }
    // In one process the caller's memory is read by the receiver, so the sender stays for that.
    member.meet();
    if (rank == 0 && kind() == Kind::kInproc) complete(transport, first);
    member.meet();
    if (rank == 2) member.transport.reset();
    member.meet();
    if (rank != 0) return;
    complete(transport, first);
    EXPECT_EQ(into, data);
    try {
      complete(transport, transport.post_receive(2, 2, 777));
      ADD_FAILURE() << "the peer's end was not seen";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerFailed) << error.what();
      EXPECT_EQ(error.peer(), 2);
      EXPECT_NE(std::string(error.what()).find("rank 2"), std::string::npos) << error.what();
    }
    EXPECT_THROW(complete(transport, transport.post_receive(2, 3, 777)), Error)
        << "a failed transport stays failed";
  });
}

TEST_P(Conformance, APeerThatIsDoneDoesNotDisturbTheOthers) {
  if (ranks_at_hand() < 3) GTEST_SKIP() << "needs 3 ranks";
  const auto data = pattern(1 << 20, 5);
  run_members(kind(), 3, [&](Member& member) {
    Transport& transport = *member.transport;
    const int rank = transport.rank();
    transport.begin_call(label_of(1));
    member.meet();
    if (rank == 2) member.transport.reset();
    member.meet();
    if (rank == 0) {
      const int to[] = {1};
      complete(transport, transport.post_send(data.data(), data.size(), to, 1));
    } else if (rank == 1) {
      std::vector<std::byte> into(data.size());
      complete(transport, transport.post_receive(0, 1, into.data(), into.size()));
      EXPECT_EQ(into, data);
    }
  });
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
  const auto data = pattern(kBytes, 13);
  run_members(kind(), 2, [&](Member& member) {
    Transport& transport = *member.transport;
    std::vector<std::byte> into(kBytes);
    transport.begin_call(label_of(1));
    [[maybe_unused]] const std::size_t before = resident_bytes();
    std::vector<Ticket> sends;
    Ticket unrelated = 0;
    if (transport.rank() == 0) {
      const int to[] = {1};
      for (Tag tag = 0; tag < kCount; ++tag) {
        sends.push_back(transport.post_send(data.data(), kBytes, to, tag));
      }
    } else {
      unrelated = transport.post_receive(0, kCount + 1, 1);
    }
    // The receiver makes progress, but has posted nothing of it.
    const auto until = Clock::now() + 300ms;
    while (Clock::now() < until) transport.test(sends.empty() ? unrelated : sends.back());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(resident_bytes(), before + (std::size_t{64} << 20));
#endif
    if (transport.rank() == 0) {
      EXPECT_FALSE(transport.test(sends.back()));
      member.meet();
      return complete(transport, sends);
    }
    member.meet();
    for (Tag tag = 0; tag < kCount; ++tag) {
      const Ticket ticket = transport.post_receive(0, tag, into.data(), kBytes);
      complete(transport, ticket);
      transport.release(ticket);
      ASSERT_EQ(std::memcmp(into.data(), data.data(), kBytes), 0) << tag;
    }
  });
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

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(kAllKinds), kind_of);

}  // namespace
}  // namespace agoq::test
