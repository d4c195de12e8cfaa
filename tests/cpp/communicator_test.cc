// Arguments, agreement between ranks, counters.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

constexpr DataType kFp32 = DataType::kFloat32;
constexpr ReduceOp kSum = ReduceOp::kSum;

Options short_timeout() {
  Options options = quantize_all();
  options.timeout = std::chrono::seconds(20);
  return options;
}

TEST(Communicator, RefusedArgumentsSayWhyAndHarmNothing) {
  Communicator comm(std::move(make_inproc_group(1)[0]), short_timeout());
  float x = 1;
  const void* in[] = {&x};
  void* out[] = {&x};
  const std::int64_t one[] = {1}, negative[] = {-1}, two[] = {1, 1};
  const std::vector<std::function<void()>> calls = {
      [&] { comm.all_reduce(&x, &x, -1, kFp32, kSum); },
      [&] { comm.all_reduce(nullptr, &x, 1, kFp32, kSum); },
      [&] { comm.all_reduce(&x, nullptr, 1, kFp32, kSum); },
      [&] { comm.all_reduce(&x, &x, 1, kFp32, ReduceOp::kBitAnd); },
      [&] { comm.all_reduce(&x, &x, 1, DataType::kOther, kSum); },
      [&] { comm.reduce_scatter(in, negative, &x, kFp32, kSum); },
      [&] { comm.reduce_scatter(in, two, &x, kFp32, kSum); },
      [&] { comm.reduce_scatter({}, {}, &x, kFp32, kSum); },
      [&] { comm.reduce_scatter(in, one, nullptr, kFp32, kSum); },
      [&] { comm.all_gather(&x, out, two, kFp32); },
      [&] { comm.all_gather(nullptr, out, one, kFp32); },
      [&] { comm.check_call(Operation::kBroadcast, kFp32, ReduceOp::kNone, -3, 0); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Outcome outcome = outcome_of(calls[i]);
    EXPECT_EQ(outcome.error, ErrorCode::kInvalidArgument) << "call " << i << " " << outcome.words;
  }
  EXPECT_FALSE(outcome_of([&] { comm.all_reduce(&x, &x, 1, kFp32, kSum); }).error);
  EXPECT_EQ(outcome_of([] { Communicator(nullptr, Options()); }).error,
            ErrorCode::kInvalidArgument);
  Options wrong;
  wrong.segment_numel = 0;
  EXPECT_EQ(outcome_of([&] { Communicator(std::move(make_inproc_group(1)[0]), wrong); }).error,
            ErrorCode::kInvalidArgument);
}

struct Disagreement {
  const char* name;
  std::function<void(Communicator&)> by_most;
  std::function<void(Communicator&)> by_one;
  std::vector<std::string> words;
};

TEST(Communicator, RanksThatDisagreeAllHearWhichFieldDiffers) {
  static float memory[4][8192];
  const auto all_reduce = [](std::int64_t count, DataType type, ReduceOp op, float factor = 1) {
    return [=](Communicator& comm) {
      comm.all_reduce(memory[comm.rank()], memory[comm.rank()], count, type, op,
                      {.timeout = {}, .factor = factor});
    };
  };
  const auto check = [](Operation operation, int root) {
    return
        [=](Communicator& comm) { comm.check_call(operation, kFp32, ReduceOp::kNone, 10, root); };
  };
  const Disagreement cases[] = {
      {"count", all_reduce(4096, kFp32, kSum), all_reduce(4100, kFp32, kSum), {"4096", "4100"}},
      {"nothing", all_reduce(4096, kFp32, kSum), all_reduce(0, kFp32, kSum), {"4096", "0"}},
      {"one", all_reduce(1, kFp32, kSum), all_reduce(2, kFp32, kSum), {"1", "2"}},
      {"dtype",
       all_reduce(4096, kFp32, kSum),
       all_reduce(4096, DataType::kBfloat16, kSum),
       {"float32", "bfloat16"}},
      {"exact dtype",
       all_reduce(100, DataType::kInt32, kSum),
       all_reduce(100, DataType::kUint8, kSum),
       {"int32", "uint8"}},
      {"op",
       all_reduce(4096, kFp32, kSum),
       all_reduce(4096, kFp32, ReduceOp::kAvg),
       {"sum", "avg"}},
      {"factor",
       all_reduce(10, kFp32, ReduceOp::kPremulSum, 0.5f),
       all_reduce(10, kFp32, ReduceOp::kPremulSum, 0.25f),
       {"factor 0.5", "factor 0.25"}},
      {"root", check(Operation::kBroadcast, 0), check(Operation::kBroadcast, 1), {"root"}},
      {"operation",
       check(Operation::kBroadcast, 0),
       all_reduce(4096, kFp32, kSum),
       {"broadcast", "all_reduce"}},
  };
  for (const Disagreement& one_case : cases) {
    for (const int size : {2, 3, 4}) {
      const int odd = size - 1;
      const std::vector<Outcome> outcomes =
          run_ranks(size, short_timeout(), [&](Communicator& comm) {
            (comm.rank() == odd ? one_case.by_one : one_case.by_most)(comm);
          });
      for (int rank = 0; rank < size; ++rank) {
        SCOPED_TRACE(std::string(one_case.name) + ", rank " + std::to_string(rank) + ": " +
                     outcomes[rank].words);
        // Where a third rank saw it first and gave up, its words say the same.
        const bool heard = size > 2 && rank != odd && outcomes[rank].peer != odd;
        EXPECT_EQ(outcomes[rank].error, heard ? ErrorCode::kPeerFailed : ErrorCode::kMismatch);
        EXPECT_NE(outcomes[rank].words.find("rank " + std::to_string(odd)), std::string::npos);
        for (const std::string& word : one_case.words) {
          EXPECT_NE(outcomes[rank].words.find(word), std::string::npos) << word;
        }
      }
    }
  }
}

TEST(Communicator, ASegmentLengthThatDiffersIsNamed) {
  std::vector<std::unique_ptr<Transport>> transports = make_inproc_group(2);
  std::vector<Outcome> outcomes(2);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Options options = short_timeout();
    options.segment_numel = 128 * (rank + 1);
    ranks.push_back(std::make_unique<Communicator>(std::move(transports[rank]), options));
  }
  std::thread other([&] {
    std::vector<float> x(1000);
    outcomes[1] = outcome_of([&] { ranks[1]->all_reduce(x.data(), x.data(), 1000, kFp32, kSum); });
  });
  std::vector<float> x(1000);
  outcomes[0] = outcome_of([&] { ranks[0]->all_reduce(x.data(), x.data(), 1000, kFp32, kSum); });
  other.join();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, ErrorCode::kMismatch) << outcome.words;
    EXPECT_NE(outcome.words.find("segment_numel"), std::string::npos) << outcome.words;
  }
}

TEST(Communicator, UnevenCountsThatDifferInDivisionOnlyAreNamed) {
  const auto outcomes = run_ranks(2, short_timeout(), [](Communicator& comm) {
    std::vector<float> x(30), y(30);
    const bool first = comm.rank() == 0;
    const std::vector<std::int64_t> counts = {first ? 10 : 20, first ? 20 : 10};
    const std::vector<const void*> in = {x.data(), x.data() + counts[0]};
    comm.reduce_scatter(in, counts, y.data(), kFp32, kSum);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, ErrorCode::kMismatch) << outcome.words;
    EXPECT_NE(outcome.words.find("divided"), std::string::npos) << outcome.words;
  }
}

TEST(Communicator, CheckCallPassesWhereRanksAgreeAndTakesItsTurn) {
  for (const int size : {1, 2, 5}) {
    expect_success(run_ranks(size, short_timeout(), [](Communicator& comm) {
      std::vector<float> x(5000, 1.0f);
      for (int i = 0; i < 10; ++i) {
        comm.check_call(Operation::kBroadcast, kFp32, ReduceOp::kNone, 77, 0);
        comm.all_reduce(x.data(), x.data(), 5000, kFp32, kSum);
        comm.check_call(Operation::kBarrier, DataType::kOther, ReduceOp::kNone, 0, 0);
      }
    }));
  }
}

TEST(Communicator, BytesFollowTheFormula) {
  const std::int64_t block = 128;
  for (const int size : {2, 4}) {
    const std::int64_t count = block * size * 100;
    expect_success(run_ranks(size, quantize_all(), [&](Communicator& comm) {
      std::vector<float> x(count, 1.0f), y(count);
      comm.all_reduce(x.data(), y.data(), count, kFp32, kSum);
      comm.all_reduce(x.data(), y.data(), count, kFp32, ReduceOp::kMax);
      std::vector<const void*> in;
      std::vector<void*> out;
      for (int rank = 0; rank < size; ++rank) {
        in.push_back(x.data() + rank * count / size);
        out.push_back(y.data() + rank * count / size);
      }
      const std::vector<std::int64_t> counts(size, count / size);
      comm.reduce_scatter(in, counts, y.data(), kFp32, kSum);
      comm.all_gather(x.data(), out, counts, kFp32);
      const std::int64_t share = (size - 1) * count / size;  // (p-1)/p * N
      const std::int64_t encoded = share + share / block * 2;
      const Stats stats = comm.stats();
      const OperationStats& reduce = of(stats, Operation::kAllReduce);
      EXPECT_EQ(reduce.quantized_calls, 1);
      EXPECT_EQ(reduce.exact_calls, 1);
      EXPECT_EQ(reduce.exact_by_reason[static_cast<int>(ExactReason::kReduceOp)], 1);
      EXPECT_EQ(reduce.elements, 2 * count);
      EXPECT_EQ(reduce.wire_bytes, 2 * encoded + 2 * share * 4);
      EXPECT_EQ(reduce.exact_bytes, 4 * share * 4);
      EXPECT_GT(reduce.encode_seconds, 0);
      EXPECT_GT(reduce.sum_seconds, 0);
      EXPECT_GT(reduce.decode_seconds, 0);
      EXPECT_GE(reduce.total_seconds, reduce.encode_seconds + reduce.sum_seconds +
                                          reduce.decode_seconds + reduce.wait_seconds);
      for (const Operation operation : {Operation::kReduceScatter, Operation::kAllGather}) {
        EXPECT_EQ(of(stats, operation).wire_bytes, encoded);
        EXPECT_EQ(of(stats, operation).exact_bytes, share * 4);
        EXPECT_EQ(of(stats, operation).quantized_calls, 1);
      }
      comm.record_exact(Operation::kBroadcast, ExactReason::kOperation, 10, 40, 0.5);
      EXPECT_EQ(of(comm.stats(), Operation::kBroadcast).wire_bytes, 40);
      EXPECT_EQ(of(comm.stats(), Operation::kBroadcast).exact_by_reason[1 + 1], 1);
      comm.reset_stats();
      EXPECT_EQ(of(comm.stats(), Operation::kAllReduce).elements, 0);
    }));
  }
}

TEST(Communicator, DescribesItself) {
  Communicator comm(std::move(make_inproc_group(3)[1]), Options());
  const std::string text = comm.describe();
  for (const char* word : {"rank 1 of 3", "inproc", "int8/128/bf16", "8.125", "all_reduce",
                           "reduce_scatter", "16384", "61440", "flat"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in\n" << text;
  }
}

TEST(Communicator, GroupsDoNotDisturbEachOther) {
  const auto work = [](int size, float value) {
    expect_success(run_ranks(size, quantize_all(), [&](Communicator& comm) {
      std::vector<float> x(3000);
      for (int i = 0; i < 30; ++i) {
        std::fill(x.begin(), x.end(), value);
        comm.all_reduce(x.data(), x.data(), 3000, kFp32, kSum);
        EXPECT_EQ(x[0], x[2999]);
        EXPECT_NEAR(x[0], size * value, size * value / 100);
      }
    }));
  };
  std::thread first(work, 2, 1.0f), second(work, 3, 5.0f);
  first.join();
  second.join();
}

TEST(Communicator, CallsOfSeveralThreadsRunOneAfterAnother) {
  // One rank: the order in which threads get their turn need not agree with anyone's.
  Communicator comm(std::move(make_inproc_group(1)[0]), quantize_all());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::vector<float> x(100, 2.0f);
      for (int j = 0; j < 50; ++j) comm.all_reduce(x.data(), x.data(), 100, kFp32, kSum);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(of(comm.stats(), Operation::kAllReduce).exact_calls, 200);
}

}  // namespace
}  // namespace agoq::testing
