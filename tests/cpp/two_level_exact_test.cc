// Exact collectives in two levels: every type and operation, in the stated order.
#include <gtest/gtest.h>

#include <vector>

#include "collective/exact_reduce.h"
#include "two_level_testing.h"

namespace agoq::testing {
namespace {

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum,     ReduceOp::kAvg,   ReduceOp::kPremulSum,
                                ReduceOp::kProduct, ReduceOp::kMin,   ReduceOp::kMax,
                                ReduceOp::kBitAnd,  ReduceOp::kBitOr, ReduceOp::kBitXor};
const CallOptions kCall{.timeout = {}, .factor = 0.25f};

Options exact_two_levels() {
  Options options;
  options.algorithm = Algorithm::kTwoLevel;
  options.min_numel = std::int64_t{1} << 40;
  options.segment_numel = 1000;
  options.timeout = std::chrono::seconds(60);
  return options;
}

/// Within each node in rank order, rounded to the type; then over the nodes in node order.
Bytes reduce(const std::vector<Bytes>& inputs, const Nodes& nodes, DataType type, ReduceOp op) {
  const auto ranks = static_cast<int>(inputs.size());
  const auto count = static_cast<std::int64_t>(inputs[0].size() / size_of(type));
  const bool scales = op == ReduceOp::kAvg || op == ReduceOp::kPremulSum;
  std::vector<Bytes> sums;
  std::vector<const void*> pointers;
  if (node_count(nodes) == 1) sums = inputs;  // Flat: nothing is rounded on the way.
  for (int node = 0; node < node_count(nodes) && node_count(nodes) > 1; ++node) {
    std::vector<const void*> pieces;
    for (const int rank : ranks_of(nodes, node)) pieces.push_back(inputs[rank].data());
    Bytes& sum = sums.emplace_back(inputs[0].size());
    exact_reduce(pieces, count, type, scales ? ReduceOp::kSum : op, 1.0f, ranks, sum.data());
  }
  for (const Bytes& sum : sums) pointers.push_back(sum.data());
  Bytes result(inputs[0].size());
  exact_reduce(pointers, count, type, op, kCall.factor, ranks, result.data());
  return result;
}

class TwoLevelExact : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Topologies, TwoLevelExact, ::testing::ValuesIn(kTopologies),
                         [](const auto& info) { return "Nodes" + name_of(info.param); });

/// A call, what each rank has for it, and what all of them should get.
struct Case {
  DataType type;
  ReduceOp op;
  std::int64_t count;  // Of a rank's chunk.
  std::vector<Bytes> inputs;
  Bytes expected;
};

std::vector<Case> every_case(const Nodes& nodes) {
  const auto size = static_cast<int>(nodes.size());
  std::vector<DataType> types(std::begin(kTypes), std::end(kTypes));
  for (int i = 3; i < 12; ++i) types.push_back(static_cast<DataType>(i));
  std::vector<Case> cases;
  for (const std::int64_t count : {0, 1, 129, 2049}) {
    for (const DataType type : types) {
      for (const ReduceOp op : kAllOps) {
        if (outcome_of([&] { check_reducible(type, op); }).error) continue;
        const auto bytes = static_cast<std::int64_t>(size_of(type)) * count * size;
        std::vector<Bytes> inputs;
        for (int rank = 0; rank < size; ++rank) {
          // Bytes of small integers: no NaN in any type, and nothing overflows.
          Bytes input(bytes);
          for (std::int64_t i = 0; i < bytes; ++i) input[i] = std::byte((i * 7 + rank * 3) % 61);
          inputs.push_back(std::move(input));
        }
        Bytes expected = reduce(inputs, nodes, type, op);
        cases.push_back({type, op, count, std::move(inputs), std::move(expected)});
      }
    }
  }
  return cases;
}

TEST_P(TwoLevelExact, EveryTypeAndOperationReducesNodeByNode) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  const std::vector<Case> cases = every_case(nodes);
  EXPECT_GT(cases.size(), 200u);
  expect_success(run_ranks(
      make_slow_group(size, -1, 3), exact_two_levels(),
      [&](Communicator& comm) {
        for (const Case& one : cases) {
          SCOPED_TRACE(std::string(to_string(one.type)) + " " + std::string(to_string(one.op)) +
                       " " + std::to_string(one.count));
          Bytes in_place = one.inputs[comm.rank()];
          comm.all_reduce(in_place.data(), in_place.data(), one.count * size, one.type, one.op,
                          kCall);
          EXPECT_TRUE(in_place == one.expected);
          const std::vector<std::int64_t> counts(size, one.count);
          Bytes own(one.count * size_of(one.type));
          comm.reduce_scatter(chunks_in(one.inputs[comm.rank()], one.type, counts), counts,
                              own.data(), one.type, one.op, kCall);
          EXPECT_TRUE(own == slice(one.expected, one.type, comm.rank() * one.count, one.count));
        }
      },
      Topology(nodes)));
}

TEST_P(TwoLevelExact, GatherBroadcastAndReduceReachEveryRank) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  const std::int64_t count = 4099;
  const auto type = DataType::kInt32;
  std::vector<Bytes> inputs;
  Bytes whole;
  for (int rank = 0; rank < size; ++rank) {
    Bytes input(count * size_of(type));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = std::byte((i * 11 + rank * 5) % 251);
    whole.insert(whole.end(), input.begin(), input.end());
    inputs.push_back(std::move(input));
  }
  const Bytes sum = reduce(inputs, nodes, type, ReduceOp::kSum);
  expect_success(run_ranks(
      make_slow_group(size, size - 1, 3), exact_two_levels(),
      [&](Communicator& comm) {
        const std::vector<std::int64_t> counts(size, count);
        Bytes gathered(whole.size());
        std::vector<void*> out;
        for (const void* chunk : chunks_in(gathered, type, counts)) {
          out.push_back(const_cast<void*>(chunk));
        }
        comm.all_gather(inputs[comm.rank()].data(), out, counts, type);
        EXPECT_TRUE(gathered == whole);
        for (int root = 0; root < size; ++root) {
          Bytes data = comm.rank() == root ? inputs[root] : Bytes(inputs[0].size());
          comm.broadcast(data.data(), count, type, root);
          EXPECT_TRUE(data == inputs[root]) << root;
          Bytes reduced(inputs[0].size());
          comm.reduce(inputs[comm.rank()].data(), reduced.data(), count, type, ReduceOp::kSum,
                      root);
          EXPECT_TRUE(reduced == (comm.rank() == root ? sum : Bytes(sum.size()))) << root;
        }
      },
      Topology(nodes)));
}

/// The bytes that a rank sent to other nodes in an exact all-reduce of `count` fp32 elements.
std::int64_t far_bytes(const Options& options, std::int64_t count) {
  std::int64_t bytes = 0;
  expect_success(run_ranks(
      make_inproc_group(4), options,
      [&](Communicator& comm) {
        std::vector<float> data(count, 1.0f);
        comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kMax);
        if (comm.rank() == 0) {
          bytes = of(comm.stats(), Operation::kAllReduce).wire_bytes_between_nodes;
        }
      },
      Topology(std::vector<int>{0, 0, 1, 1})));
  return bytes;
}

TEST(TwoLevelChoice, AutoLeavesSmallExactCallsFlat) {
  Options options = exact_two_levels();
  options.segment_numel = 65536;
  const std::int64_t least = (64 << 10) / 4;
  const std::int64_t in_two_levels = far_bytes(options, least);
  EXPECT_EQ(in_two_levels, 4 * least / 2);
  options.algorithm = Algorithm::kFlat;
  EXPECT_EQ(far_bytes(options, least), 2 * in_two_levels);
  options.algorithm = Algorithm::kAuto;
  EXPECT_EQ(far_bytes(options, least), in_two_levels);
  EXPECT_GT(far_bytes(options, least - 64), in_two_levels);
}

}  // namespace
}  // namespace agoq::testing
