// Ranks that are late, leave or abort: nobody hangs, and the words say who and what.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "group_testing.h"

namespace agoq::testing {
namespace {

using std::chrono::milliseconds;
constexpr DataType kFp32 = DataType::kFloat32;
constexpr ReduceOp kSum = ReduceOp::kSum;

/// Memory that no call of these tests shares.
struct Buffer {
  explicit Buffer(std::int64_t count = 5000) : values(count, 1.0f) {}
  void all_reduce(Communicator& comm, const CallOptions& call = {}) {
    comm.all_reduce(values.data(), values.data(), std::ssize(values), kFp32, kSum, call);
  }
  std::vector<float> values;
};

bool contains(const std::string& text, const std::string& word) {
  return text.find(word) != std::string::npos;
}

TEST(CommunicatorFailure, ARankThatNeverCallsIsNamedWhenTimeIsUp) {
  for (const int size : {2, 3}) {
    const int absent = size - 1;
    const auto outcomes = run_ranks(size, quantize_all(), [&](Communicator& comm) {
      if (comm.rank() == absent) return;
      Buffer().all_reduce(comm, {.timeout = milliseconds(150), .factor = 1});
    });
    // Who runs out of time first says so itself; the others may hear it from that rank.
    int timeouts = 0;
    for (int rank = 0; rank < absent; ++rank) {
      SCOPED_TRACE(outcomes[rank].words);
      timeouts += outcomes[rank].error == ErrorCode::kTimeout;
      EXPECT_TRUE(outcomes[rank].error == ErrorCode::kTimeout ||
                  outcomes[rank].error == ErrorCode::kPeerFailed);
      EXPECT_TRUE(contains(outcomes[rank].words, " Timed out "));
      EXPECT_TRUE(contains(outcomes[rank].words, "all_reduce"));
      EXPECT_TRUE(contains(outcomes[rank].words, "waiting for rank " + std::to_string(absent)));
    }
    EXPECT_GE(timeouts, 1);
  }
}

TEST(CommunicatorFailure, TheGroupsTimeoutHoldsWhereTheCallStatesNone) {
  Options options = quantize_all();
  options.timeout = milliseconds(100);
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = run_ranks(2, options, [](Communicator& comm) {
    if (comm.rank() == 0) Buffer().all_reduce(comm);
  });
  EXPECT_EQ(outcomes[0].error, ErrorCode::kTimeout);
  EXPECT_EQ(outcomes[0].peer, 1);
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(100));
}

TEST(CommunicatorFailure, LaterCallsFailFastWithTheFirstFailuresWords) {
  const auto outcomes = run_ranks(2, quantize_all(), [](Communicator& comm) {
    if (comm.rank() == 1) return;
    const Outcome first =
        outcome_of([&] { Buffer().all_reduce(comm, {.timeout = milliseconds(50), .factor = 1}); });
    EXPECT_EQ(first.error, ErrorCode::kTimeout);
    const auto start = std::chrono::steady_clock::now();
    const Outcome second = outcome_of([&] { Buffer().all_reduce(comm); });
    EXPECT_EQ(second.error, ErrorCode::kAborted);
    EXPECT_TRUE(contains(second.words, first.words)) << second.words;
    const Outcome third =
        outcome_of([&] { comm.check_call(Operation::kBarrier, kFp32, ReduceOp::kNone, 0, 0); });
    EXPECT_EQ(third.error, ErrorCode::kAborted);
    EXPECT_TRUE(contains(third.words, first.words)) << third.words;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  });
  expect_success(outcomes);
}

TEST(CommunicatorFailure, AbortFromAnotherThreadEndsTheCall) {
  const auto outcomes = run_ranks(3, quantize_all(), [](Communicator& comm) {
    if (comm.rank() == 2) return;
    std::thread aborter;
    if (comm.rank() == 0) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(50));
        comm.abort("the user pressed stop");
      });
    }
    const Outcome outcome = outcome_of([&] { Buffer().all_reduce(comm); });
    if (aborter.joinable()) aborter.join();
    if (outcome.error) throw Error(*outcome.error, outcome.words, outcome.peer);
  });
  EXPECT_EQ(outcomes[0].error, ErrorCode::kAborted) << outcomes[0].words;
  EXPECT_TRUE(contains(outcomes[0].words, "the user pressed stop")) << outcomes[0].words;
  EXPECT_EQ(outcomes[1].error, ErrorCode::kPeerFailed) << outcomes[1].words;
  EXPECT_EQ(outcomes[1].peer, 0);
  EXPECT_TRUE(contains(outcomes[1].words, "rank 0")) << outcomes[1].words;
  EXPECT_TRUE(contains(outcomes[1].words, "the user pressed stop")) << outcomes[1].words;
}

TEST(CommunicatorFailure, APeerThatLeavesIsNamedToThoseWhoAwaitIt) {
  for (const bool quantized : {true, false}) {
    Options options = quantize_all();
    if (!quantized) options.min_numel = 1 << 30;
    auto transports = make_inproc_group(2);
    Communicator stays(std::move(transports[0]), options);
    auto leaves = std::make_unique<Communicator>(std::move(transports[1]), options);
    std::thread leaving([&] {
      std::this_thread::sleep_for(milliseconds(30));
      leaves.reset();
    });
    const Outcome outcome = outcome_of([&] { Buffer().all_reduce(stays); });
    leaving.join();
    EXPECT_EQ(outcome.error, ErrorCode::kPeerFailed) << outcome.words;
    EXPECT_EQ(outcome.peer, 1);
    EXPECT_TRUE(contains(outcome.words, "all_reduce")) << outcome.words;
    EXPECT_TRUE(contains(outcome.words, "bytes")) << outcome.words;
  }
}

TEST(CommunicatorFailure, DestructionWithCallsPendingNeitherHangsNorCrashes) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    auto transports = make_inproc_group(2);
    auto comm = std::make_unique<Communicator>(std::move(transports[0]), quantize_all());
    std::atomic<int> started = 0;
    std::vector<Outcome> outcomes(3);
    std::vector<std::thread> callers;
    for (int i = 0; i < 3; ++i) {  // One call runs, two wait for their turn.
      callers.emplace_back([&, i, pointer = comm.get()] {
        Buffer buffer;
        ++started;
        outcomes[i] = outcome_of([&] { buffer.all_reduce(*pointer); });
      });
    }
    while (started < 3) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(20));
    comm.reset();
    for (std::thread& caller : callers) caller.join();
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error, ErrorCode::kAborted) << outcome.words;
      EXPECT_TRUE(contains(outcome.words, "destroyed")) << outcome.words;
    }
  }
}

TEST(CommunicatorFailure, APeerThatFailsMidwayReadsNoFreedMemory) {
  // Rank 0 gives up while rank 1 may be copying out of rank 0's buffer, which is freed at once.
  for (int repetition = 0; repetition < 20; ++repetition) {
    Options options;
    options.min_numel = 1 << 30;
    options.segment_numel = 4096;
    options.timeout = std::chrono::seconds(20);
    run_ranks(make_slow_group(2, 1, repetition), options, [&](Communicator& comm) {
      std::thread aborter;
      if (comm.rank() == 0) {
        aborter = std::thread([&] {
          std::this_thread::sleep_for(std::chrono::microseconds(100 * repetition));
          comm.abort("enough");
        });
      }
      outcome_of([&] { Buffer(200000).all_reduce(comm); });
      if (aborter.joinable()) aborter.join();
      EXPECT_EQ(outcome_of([&] {
                  comm.check_call(Operation::kBarrier, kFp32, ReduceOp::kNone, 0, 0);
                }).error.has_value(),
                true);
    });
  }
}

TEST(CommunicatorFailure, TheGroupIsUsableAfterARefusedCall) {
  expect_success(run_ranks(2, quantize_all(), [](Communicator& comm) {
    EXPECT_EQ(outcome_of([&] { comm.all_reduce(nullptr, nullptr, 5, kFp32, kSum); }).error,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(outcome_of([&] {
                const std::vector<std::int64_t> counts = {std::int64_t{1} << 52, 0};
                float x = 0;
                const std::vector<const void*> in = {&x, &x};
                comm.reduce_scatter(in, counts, &x, kFp32, kSum);
              }).error,
              ErrorCode::kInvalidArgument);
    Buffer().all_reduce(comm);
  }));
}

}  // namespace
}  // namespace agoq::testing
