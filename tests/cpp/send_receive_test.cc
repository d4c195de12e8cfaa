// Send and receive between two ranks of a group, among the calls of all.
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "agoqcomm/communicator.h"
#include "agoqcomm/error.h"
#include "group_testing.h"
#include "transport_group.h"

namespace agoq::test {
namespace {

using agoq::testing::expect_success;
using agoq::testing::Outcome;
using agoq::testing::run_ranks;

Options options_of_tests() {
  Options options;
  options.segment_numel = 4096;
  options.timeout = kPatience;
  return options;
}

std::vector<std::int32_t> numbers(int from, std::int64_t count) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), from * 1'000'000);
  return values;
}

class SendReceive : public ::testing::TestWithParam<Kind> {};

TEST_P(SendReceive, MessagesOfAnyLengthComeInOrderAmongTheCallsOfAll) {
  constexpr int kRanks = 4;
  expect_success(run_ranks(make_group(GetParam(), kRanks), options_of_tests(), [](Communicator& c) {
    const int next = (c.rank() + 1) % kRanks;
    const int before = (c.rank() + kRanks - 1) % kRanks;
    for (const std::int64_t count : {0, 1, 1023, 1024, 1025, 300'000}) {
      const std::vector<std::int32_t> out = numbers(c.rank(), count);
      std::vector<std::int32_t> in(out.size());
      // Even ranks first: whoever is long waits for its receiver.
      for (const bool sends : {c.rank() % 2 == 0, c.rank() % 2 != 0}) {
        if (sends) {
          c.send(out.data(), count, DataType::kInt32, next);
        } else {
          c.receive(in.data(), count, DataType::kInt32, before);
        }
      }
      EXPECT_EQ(in, numbers(before, count));
      // Ranks 0 and 1 have made more calls with each other than with the rest.
      std::int32_t extra = c.rank();
      if (c.rank() == 1) c.send(&extra, 1, DataType::kInt32, 0);
      if (c.rank() == 0) c.receive(&extra, 1, DataType::kInt32, 1);
      std::int32_t sum = extra;
      c.all_reduce(&sum, &sum, 1, DataType::kInt32, ReduceOp::kSum);
      EXPECT_EQ(sum, 1 + 1 + 2 + 3);
    }
  }));
}

TEST_P(SendReceive, CountersAreTheSendersAndTheReceivers) {
  expect_success(run_ranks(make_group(GetParam(), 2), options_of_tests(), [](Communicator& c) {
    std::vector<double> values(5000, c.rank());
    if (c.rank() == 0) c.send(values.data(), 5000, DataType::kFloat64, 1);
    if (c.rank() == 1) c.receive(values.data(), 5000, DataType::kFloat64, 0);
    const Stats stats = c.stats();
    const OperationStats& sent = of(stats, Operation::kSend);
    const OperationStats& received = of(stats, Operation::kReceive);
    EXPECT_EQ(sent.exact_calls, c.rank() == 0 ? 1 : 0);
    EXPECT_EQ(sent.wire_bytes, c.rank() == 0 ? 40'000 : 0);
    EXPECT_EQ(received.exact_calls, c.rank() == 1 ? 1 : 0);
    EXPECT_EQ(received.elements, c.rank() == 1 ? 5000 : 0);
  }));
}

INSTANTIATE_TEST_SUITE_P(Transports, SendReceive,
                         ::testing::Values(Kind::kInproc, Kind::kTcp, Kind::kShm, Kind::kTwoHosts),
                         [](const auto& info) { return to_string(info.param); });

/// What rank 1 hears where ranks 0 and 1 do these.
template <typename Zero, typename One>
Outcome disagreement(Zero zero, One one) {
  return run_ranks(make_group(Kind::kTcp, 2), options_of_tests(),
                   [&](Communicator& c) { c.rank() == 0 ? zero(c) : one(c); })[1];
}

TEST(SendReceiveErrors, RanksThatDisagreeAreToldHow) {
  std::int32_t values[4] = {};
  std::int32_t sums[4] = {};
  const auto send = [&](Communicator& c) { c.send(values, 4, DataType::kInt32, 1 - c.rank()); };
  const auto receive = [&](std::int64_t count) {
    return [&, count](Communicator& c) { c.receive(sums, count, DataType::kInt32, 1 - c.rank()); };
  };
  const auto all_reduce = [&](Communicator& c) {
    c.all_reduce(sums, sums, 4, DataType::kInt32, ReduceOp::kSum);
  };
  const auto expect = [](const Outcome& outcome, const std::string& words) {
    EXPECT_EQ(outcome.error, ErrorCode::kMismatch) << outcome.words;
    EXPECT_NE(outcome.words.find(words), std::string::npos) << outcome.words;
  };
  expect(disagreement(send, receive(3)), "rank 0 called send with 4 elements of int32, rank 1");
  expect(disagreement(send, all_reduce), "rank 0 called send, rank 1 all_reduce");
}

TEST(SendReceiveErrors, ArgumentsAreChecked) {
  const auto outcomes = run_ranks(2, options_of_tests(), [](Communicator& c) {
    float value = 0;
    EXPECT_THROW(c.send(&value, 1, DataType::kFloat32, c.rank()), Error);
    EXPECT_THROW(c.send(&value, 1, DataType::kFloat32, 2), Error);
    EXPECT_THROW(c.receive(nullptr, 1, DataType::kFloat32, 1 - c.rank()), Error);
    EXPECT_THROW(c.receive(&value, -1, DataType::kFloat32, 1 - c.rank()), Error);
    c.barrier();
  });
  expect_success(outcomes);
}

TEST(SendReceiveErrors, AReceiverTimesOutNamingTheSender) {
  Options options = options_of_tests();
  options.timeout = std::chrono::milliseconds(100);
  const auto outcomes = run_ranks(make_group(Kind::kTcp, 3), options, [](Communicator& c) {
    float value = 0;
    if (c.rank() == 2) c.receive(&value, 1, DataType::kFloat32, 0);
  });
  EXPECT_EQ(outcomes[2].error, ErrorCode::kTimeout) << outcomes[2].words;
  EXPECT_EQ(outcomes[2].peer, 0);
  EXPECT_NE(outcomes[2].words.find("send from rank 0"), std::string::npos) << outcomes[2].words;
}

}  // namespace
}  // namespace agoq::test
