// Broadcast, reduce, gather and scatter: for every root, size and type, over segments.
#include <gtest/gtest.h>

#include <vector>

#include "collective/exact_reduce.h"
#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

constexpr DataType kMoved[] = {DataType::kFloat32, DataType::kInt64, DataType::kOther};
// None, less than a segment, whole segments, more.
const std::vector<std::int64_t> kSomeCounts = {0, 1, 1000, 3000, 100007};

Options short_segments() {
  Options options = quantize_all();  // These operations are exact all the same.
  options.segment_numel = 4000;      // Bytes, where nothing is quantized: 1000 of fp32.
  return options;
}

Bytes some_bytes(DataType type, std::int64_t count, int seed) {
  Bytes bytes(count * size_of(type));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte((i * 7 + seed * 3) % 61);
  return bytes;
}

/// body(communicator, root, type, count) on every rank, for all of them.
template <typename Body>
void for_all(int size, Body body) {
  for (const DataType type : kMoved) {
    for (const std::int64_t count : kSomeCounts) {
      for (int root = 0; root < size; ++root) {
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::to_string(count) + " root " +
                     std::to_string(root));
        expect_success(run_ranks(make_slow_group(size, root, root), short_segments(),
                                 [&](Communicator& comm) { body(comm, root, type, count); }));
      }
    }
  }
}

class RootedOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, RootedOfSize, ::testing::Values(1, 2, 3, 5));

TEST_P(RootedOfSize, BroadcastGivesEveryRankTheRootsBytes) {
  for_all(GetParam(), [](Communicator& comm, int root, DataType type, std::int64_t count) {
    Bytes data = some_bytes(type, count, comm.rank());
    comm.broadcast(data.data(), count, type, root);
    EXPECT_TRUE(data == some_bytes(type, count, root));
  });
}

TEST_P(RootedOfSize, GatherGivesTheRootAllAndScatterGivesThemBack) {
  for_all(GetParam(), [](Communicator& comm, int root, DataType type, std::int64_t count) {
    std::vector<std::int64_t> counts(comm.size(), count);
    counts[comm.size() - 1] = count / 3;  // Uneven ones, too.
    const std::int64_t own = counts[comm.rank()];
    const Bytes mine = some_bytes(type, own, comm.rank());
    std::vector<Bytes> gathered;
    std::vector<void*> out;
    std::vector<const void*> in;
    if (comm.rank() == root) {
      for (const std::int64_t n : counts) gathered.emplace_back(n * size_of(type));
      for (Bytes& chunk : gathered) out.push_back(chunk.data());
      in.assign(out.begin(), out.end());
    }
    comm.gather(mine.data(), out, counts, type, root);
    for (std::size_t rank = 0; rank < gathered.size(); ++rank) {
      EXPECT_TRUE(gathered[rank] == some_bytes(type, counts[rank], static_cast<int>(rank)));
    }
    Bytes back(own * size_of(type));
    comm.scatter(in, counts, back.data(), type, root);
    EXPECT_TRUE(back == mine);
  });
}

TEST_P(RootedOfSize, ReduceIsOneReductionOfTheWholeInRankOrder) {
  const int size = GetParam();
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kInt32}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
      for (const std::int64_t count : kSomeCounts) {
        for (int root = 0; root < size; ++root) {
          std::vector<Bytes> inputs;
          std::vector<const void*> pointers;
          for (int rank = 0; rank < size; ++rank) {
            // Random numbers: their sum depends on the order.
            inputs.push_back(type == DataType::kInt32
                                 ? some_bytes(type, count, rank)
                                 : make_input(Family::kNormal, type, count, rank + 1));
          }
          for (const Bytes& input : inputs) pointers.push_back(input.data());
          Bytes expected(count * size_of(type));
          exact_reduce(pointers, count, type, op, 1.0f, size, expected.data());
          expect_success(run_ranks(size, short_segments(), [&](Communicator& comm) {
            const bool is_root = comm.rank() == root;
            Bytes data = inputs[comm.rank()];
            comm.reduce(data.data(), is_root ? data.data() : nullptr, count, type, op, root);
            EXPECT_TRUE(data == (is_root ? expected : inputs[comm.rank()]));
          }));
        }
      }
    }
  }
}

TEST(RootedCollectives, CountBytesAndCalls) {
  expect_success(run_ranks(3, short_segments(), [](Communicator& comm) {
    std::vector<float> x(5000), y(15000);
    const std::vector<std::int64_t> counts(3, 5000);
    const std::vector<void*> out = {y.data(), y.data() + 5000, y.data() + 10000};
    const std::vector<const void*> in(out.begin(), out.end());
    comm.broadcast(x.data(), 5000, DataType::kFloat32, 1);
    comm.reduce(x.data(), x.data(), 5000, DataType::kFloat32, ReduceOp::kSum, 1);
    comm.gather(x.data(), out, counts, DataType::kFloat32, 1);
    comm.scatter(in, counts, x.data(), DataType::kFloat32, 1);
    comm.barrier();
    const Stats stats = comm.stats();
    const bool is_root = comm.rank() == 1;
    const auto bytes = [&](Operation operation) { return of(stats, operation).wire_bytes; };
    EXPECT_EQ(bytes(Operation::kBroadcast), is_root ? 2 * 20000 : 0);
    EXPECT_EQ(bytes(Operation::kReduce), is_root ? 0 : 20000);
    EXPECT_EQ(bytes(Operation::kGather), is_root ? 0 : 20000);
    EXPECT_EQ(bytes(Operation::kScatter), is_root ? 2 * 20000 : 0);
    EXPECT_EQ(bytes(Operation::kBarrier), 0);
    EXPECT_EQ(of(stats, Operation::kGather).elements, 15000);
    for (const Operation operation : {Operation::kBroadcast, Operation::kReduce, Operation::kGather,
                                      Operation::kScatter, Operation::kBarrier}) {
      EXPECT_EQ(of(stats, operation).exact_calls, 1);
      EXPECT_EQ(
          of(stats, operation).exact_by_reason[static_cast<std::size_t>(ExactReason::kOperation)],
          1);
    }
  }));
}

struct Call {
  std::int64_t count;
  DataType type;
  int root;
};

TEST(RootedCollectives, RanksThatDisagreeHearWhichFieldDiffers) {
  const auto run = [](Communicator& comm, Operation operation, const Call& call) {
    std::vector<Bytes> memory(3, Bytes(8192));
    const std::vector<void*> out = {memory[0].data(), memory[1].data()};
    const std::vector<const void*> in(out.begin(), out.end());
    const std::vector<std::int64_t> counts(2, call.count);
    void* own = memory[2].data();
    if (operation == Operation::kBroadcast) comm.broadcast(own, call.count, call.type, call.root);
    if (operation == Operation::kReduce)
      comm.reduce(own, own, call.count, call.type, ReduceOp::kSum, call.root);
    if (operation == Operation::kGather) comm.gather(own, out, counts, call.type, call.root);
    if (operation == Operation::kScatter) comm.scatter(in, counts, own, call.type, call.root);
  };
  const Call right{100, DataType::kFloat32, 0};
  const std::pair<Call, const char*> wrong[] = {{{101, DataType::kFloat32, 0}, "101"},
                                                {{202, DataType::kFloat32, 0}, "202"},
                                                {{100, DataType::kInt32, 0}, "int32"},
                                                {{100, DataType::kFloat32, 1}, "root 1"}};
  for (const Operation operation :
       {Operation::kBroadcast, Operation::kReduce, Operation::kGather, Operation::kScatter}) {
    for (const auto& [call, word] : wrong) {
      const auto outcomes = run_ranks(2, short_segments(), [&](Communicator& comm) {
        run(comm, operation, comm.rank() == 1 ? call : right);
      });
      for (const Outcome& outcome : outcomes) {
        SCOPED_TRACE(outcome.words);
        EXPECT_EQ(outcome.error, ErrorCode::kMismatch);
        EXPECT_NE(outcome.words.find(to_string(operation)), std::string::npos);
        EXPECT_TRUE(outcome.words.find(word) != std::string::npos ||
                    outcome.words.find(std::to_string(2 * call.count)) != std::string::npos);
      }
    }
  }
}

TEST(RootedCollectives, RefusedArgumentsSayWhyAndHarmNothing) {
  Communicator comm(std::move(make_inproc_group(1)[0]), short_segments());
  float x = 1;
  const void* in[] = {&x};
  void* out[] = {&x};
  const std::int64_t one[] = {1}, negative[] = {-1};
  constexpr DataType kFp32 = DataType::kFloat32;
  const std::vector<std::function<void()>> calls = {
      [&] { comm.broadcast(&x, 1, kFp32, 1); },
      [&] { comm.broadcast(&x, 1, kFp32, -1); },
      [&] { comm.broadcast(&x, -1, kFp32, 0); },
      [&] { comm.broadcast(nullptr, 1, kFp32, 0); },
      [&] { comm.reduce(&x, nullptr, 1, kFp32, ReduceOp::kSum, 0); },
      [&] { comm.reduce(&x, &x, 1, kFp32, ReduceOp::kBitOr, 0); },
      [&] { comm.reduce(&x, &x, 1, DataType::kOther, ReduceOp::kSum, 0); },
      [&] { comm.gather(&x, {}, one, kFp32, 0); },
      [&] { comm.gather(&x, out, negative, kFp32, 0); },
      [&] { comm.gather(&x, out, {}, kFp32, 0); },
      [&] { comm.gather(nullptr, out, one, kFp32, 0); },
      [&] { comm.scatter({}, one, &x, kFp32, 0); },
      [&] { comm.scatter(in, one, nullptr, kFp32, 0); },
      [&] { comm.scatter(in, one, &x, kFp32, 3); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Outcome outcome = outcome_of(calls[i]);
    EXPECT_EQ(outcome.error, ErrorCode::kInvalidArgument) << "call " << i << " " << outcome.words;
  }
  EXPECT_FALSE(outcome_of([&] { comm.broadcast(&x, 1, kFp32, 0); }).error);
}

}  // namespace
}  // namespace agoq::testing
