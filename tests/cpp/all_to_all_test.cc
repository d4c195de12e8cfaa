// All-to-all with a count of its own for every ordered pair of ranks.
#include <gtest/gtest.h>

#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

Options short_segments() {
  Options options = quantize_all();
  options.segment_numel = 1000;
  return options;
}

/// What `from` has for `to`: some pairs have nothing, some whole segments.
std::int64_t count_of(int from, int to) {
  constexpr std::int64_t kCounts[] = {0, 1, 1000, 2000, 4097, 999, 100007};
  return kCounts[(from * 3 + to) % 7];
}

Bytes message(DataType type, int from, int to) {
  Bytes bytes(count_of(from, to) * size_of(type));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i * 7 + from * 3 + to);
  return bytes;
}

class AllToAllOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllToAllOfSize, ::testing::Values(1, 2, 3, 4, 5));

TEST_P(AllToAllOfSize, EveryPairMovesItsBytes) {
  const int size = GetParam();
  for (const DataType type :
       {DataType::kFloat32, DataType::kInt8, DataType::kComplex128, DataType::kOther}) {
    for (int late = 0; late < size; ++late) {
      expect_success(
          run_ranks(make_slow_group(size, late, late), short_segments(), [&](Communicator& comm) {
            std::vector<Bytes> sent, received;
            std::vector<std::int64_t> in_counts, out_counts;
            std::vector<const void*> in;
            std::vector<void*> out;
            std::int64_t bytes = 0;
            for (int peer = 0; peer < size; ++peer) {
              in_counts.push_back(count_of(comm.rank(), peer));
              out_counts.push_back(count_of(peer, comm.rank()));
              sent.push_back(message(type, comm.rank(), peer));
              received.emplace_back(out_counts.back() * size_of(type));
              if (peer != comm.rank()) bytes += std::ssize(sent.back());
            }
            for (const Bytes& chunk : sent) in.push_back(chunk.data());
            for (Bytes& chunk : received) out.push_back(chunk.data());
            comm.all_to_all(in, in_counts, out, out_counts, type);
            for (int peer = 0; peer < size; ++peer) {
              EXPECT_TRUE(received[peer] == message(type, peer, comm.rank())) << peer;
            }
            const Stats stats = comm.stats();
            EXPECT_EQ(of(stats, Operation::kAllToAll).wire_bytes, bytes);
          }));
    }
  }
}

// Pairs that disagree, in whole segments too, where only the last message tells.
TEST(AllToAll, APairThatDisagreesOnItsCountIsNamed) {
  const std::pair<std::int64_t, std::int64_t> pairs[] = {
      {0, 1}, {1, 0}, {1000, 999}, {1000, 2000}, {2000, 1000}, {0, 1000}, {3000, 3001}};
  for (const auto& [sent, expected] : pairs) {
    SCOPED_TRACE(std::to_string(sent) + " sent, " + std::to_string(expected) + " expected");
    const auto outcomes = run_ranks(2, short_segments(), [&](Communicator& comm) {
      std::vector<float> x(8000), y(8000);
      const std::vector<const void*> in = {x.data(), x.data() + 4000};
      const std::vector<void*> out = {y.data(), y.data() + 4000};
      const std::vector<std::int64_t> none = {0, 0};
      const std::vector<std::int64_t> in_counts = {0, sent}, out_counts = {expected, 0};
      comm.all_to_all(in, comm.rank() == 0 ? in_counts : none, out,
                      comm.rank() == 1 ? out_counts : none, DataType::kFloat32);
    });
    EXPECT_EQ(outcomes[1].error, ErrorCode::kMismatch) << outcomes[1].words;
    for (const char* word : {"rank 0", "bytes", "all_to_all"}) {
      EXPECT_NE(outcomes[1].words.find(word), std::string::npos) << outcomes[1].words;
    }
  }
}

TEST(AllToAll, RanksThatDisagreeHearWhichFieldDiffers) {
  const auto outcomes = run_ranks(3, short_segments(), [&](Communicator& comm) {
    std::vector<double> x(30), y(30);
    const std::vector<const void*> in = {&x[0], &x[10], &x[20]};
    const std::vector<void*> out = {&y[0], &y[10], &y[20]};
    const std::vector<std::int64_t> counts(3, 10);
    comm.all_to_all(in, counts, out, counts,
                    comm.rank() == 2 ? DataType::kFloat64 : DataType::kFloat32);
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.error == ErrorCode::kMismatch || outcome.error == ErrorCode::kPeerFailed);
  }
  EXPECT_EQ(outcomes[2].error, ErrorCode::kMismatch) << outcomes[2].words;
  EXPECT_NE(outcomes[2].words.find("float64"), std::string::npos) << outcomes[2].words;
}

TEST(AllToAll, RefusesCountsThatCannotBe) {
  Communicator comm(std::move(make_inproc_group(1)[0]), short_segments());
  float x = 1, y = 0;
  const void* in[] = {&x};
  void* out[] = {&y};
  const std::int64_t one[] = {1}, none[] = {0}, negative[] = {-1};
  const auto call = [&](std::span<const std::int64_t> sent, std::span<const std::int64_t> taken) {
    return outcome_of([&] { comm.all_to_all(in, sent, out, taken, DataType::kFloat32); });
  };
  EXPECT_EQ(call(one, none).error, ErrorCode::kInvalidArgument);
  EXPECT_EQ(call(negative, negative).error, ErrorCode::kInvalidArgument);
  EXPECT_EQ(call({}, one).error, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(call(one, one).error);
  EXPECT_EQ(y, 1.0f);
}

}  // namespace
}  // namespace agoq::testing
