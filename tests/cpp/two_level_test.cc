// Quantized collectives in two levels against the numeric contract, and what leaves a node.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "two_level_testing.h"

namespace agoq::testing {
namespace {

using Counts = std::vector<std::int64_t>;
using Transports = std::vector<std::unique_ptr<Transport>>;

constexpr float kPremul = -1.7f;
const CallOptions kCall{.timeout = {}, .factor = kPremul};

Options two_levels() {
  Options options = quantize_all();
  options.algorithm = Algorithm::kTwoLevel;
  return options;
}

std::vector<Bytes> all_reduce(Transports transports, const Options& options, const Nodes& nodes,
                              DataType type, ReduceOp op, const std::vector<Bytes>& inputs,
                              bool in_place = false) {
  std::vector<Bytes> outputs = inputs;
  expect_success(run_ranks(
      std::move(transports), options,
      [&](Communicator& comm) {
        const Bytes& input = inputs[comm.rank()];
        Bytes& output = outputs[comm.rank()];
        const auto count = static_cast<std::int64_t>(input.size() / size_of(type));
        comm.all_reduce(in_place ? output.data() : input.data(), output.data(), count, type, op,
                        kCall);
      },
      Topology(nodes)));
  return outputs;
}

std::vector<Bytes> reduce_scatter(Transports transports, const Options& options, const Nodes& nodes,
                                  DataType type, ReduceOp op, const std::vector<Bytes>& inputs,
                                  const Counts& counts, bool in_place = false) {
  std::vector<Bytes> outputs(inputs.size());
  expect_success(run_ranks(
      std::move(transports), options,
      [&](Communicator& comm) {
        const Bytes input = inputs[comm.rank()];
        const std::vector<const void*> in = chunks_in(input, type, counts);
        Bytes& output = outputs[comm.rank()];
        output.resize(counts[comm.rank()] * size_of(type));
        void* out = in_place ? const_cast<void*>(in[comm.rank()]) : output.data();
        comm.reduce_scatter(in, counts, out, type, op, kCall);
        if (in_place && !output.empty()) std::memcpy(output.data(), out, output.size());
      },
      Topology(nodes)));
  return outputs;
}

/// What each rank holds: the chunks one after another.
std::vector<Bytes> all_gather(Transports transports, const Options& options, const Nodes& nodes,
                              DataType type, const Bytes& whole, const Counts& counts) {
  std::vector<Bytes> outputs(nodes.size(), Bytes(whole.size()));
  expect_success(run_ranks(
      std::move(transports), options,
      [&](Communicator& comm) {
        std::vector<void*> out;
        for (const void* chunk : chunks_in(outputs[comm.rank()], type, counts)) {
          out.push_back(const_cast<void*>(chunk));
        }
        comm.all_gather(chunks_in(whole, type, counts)[comm.rank()], out, counts, type);
      },
      Topology(nodes)));
  return outputs;
}

/// Uneven on purpose: nothing for some ranks, whole blocks for others.
std::vector<Counts> counts_for(const Nodes& nodes) {
  const std::size_t size = nodes.size();
  std::vector<Counts> all = {Counts(size, 0), Counts(size, 1), Counts(size, 129),
                             Counts(size, 4097)};
  Counts uneven;
  for (std::size_t rank = 0; rank < size; ++rank) {
    uneven.push_back(rank % 3 == 1 ? 0 : static_cast<std::int64_t>(1000 * rank + 129));
  }
  all.push_back(uneven);
  all.emplace_back(size, 0).back() = 20001;
  return all;
}

class TwoLevel : public ::testing::TestWithParam<Nodes> {};
INSTANTIATE_TEST_SUITE_P(Topologies, TwoLevel, ::testing::ValuesIn(kTopologies),
                         [](const auto& info) { return "Nodes" + name_of(info.param); });

TEST_P(TwoLevel, AllReduceMeetsTheContractForAllCountsTypesAndSums) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  Options options = two_levels();
  options.segment_numel = 2048;
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum}) {
      for (const std::int64_t count : {0, 1, 128, 129, 1000, 4097, 30011}) {
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op)) + " " +
                     std::to_string(count));
        const auto inputs = make_inputs(Family::kNormal, type, count, size, count + size);
        const Expected expected =
            expected_two_level_all_reduce(codec, type, inputs, nodes, factor_of(op, size, kPremul));
        for (const Bytes& output :
             all_reduce(make_inproc_group(size), options, nodes, type, op, inputs)) {
          expect_contract(expected, output, type);
        }
      }
    }
  }
}

TEST_P(TwoLevel, ReduceScatterMeetsTheContract) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  Options options = two_levels();
  options.segment_numel = 1024;
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    const ReduceOp op = type == DataType::kFloat32 ? ReduceOp::kPremulSum : ReduceOp::kAvg;
    for (const Counts& counts : counts_for(nodes)) {
      const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      SCOPED_TRACE(std::string(to_string(type)) + " " + std::to_string(total));
      const auto inputs = make_inputs(Family::kNormal, type, total, size, total + 7);
      const auto outputs =
          reduce_scatter(make_inproc_group(size), options, nodes, type, op, inputs, counts);
      std::int64_t offset = 0;
      for (int owner = 0; owner < size; ++owner) {
        std::vector<Bytes> pieces;
        for (const Bytes& input : inputs) {
          pieces.push_back(slice(input, type, offset, counts[owner]));
        }
        offset += counts[owner];
        expect_contract(expected_two_level_chunk(codec, type, pieces, nodes, owner,
                                                 factor_of(op, size, kPremul)),
                        outputs[owner], type);
      }
    }
  }
}

TEST_P(TwoLevel, AllGatherHandsOnTheOwnersBytes) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  Options options = two_levels();
  options.segment_numel = 1024;
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    for (const Counts& counts : counts_for(nodes)) {
      const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      const Bytes whole = make_input(Family::kSpecials, type, total, 11);
      Bytes expected;
      std::int64_t offset = 0;
      for (const std::int64_t count : counts) {
        const Bytes encoded = encode(codec, slice(whole, type, offset, count), type);
        const Bytes decoded = to_type(decode(codec, encoded, count), type);
        expected.insert(expected.end(), decoded.begin(), decoded.end());
        offset += count;
      }
      for (const Bytes& output :
           all_gather(make_slow_group(size, -1, 2), options, nodes, type, whole, counts)) {
        EXPECT_TRUE(output == expected) << total;
      }
    }
  }
}

TEST_P(TwoLevel, ResultDependsOnNeitherSegmentNorTimingNorPlace) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  const DataType type = DataType::kFloat32;
  const auto inputs = make_inputs(Family::kSpecials, type, 20011, size, 17);
  Options options = two_levels();
  const auto run = [&](Transports transports, bool in_place) {
    return all_reduce(std::move(transports), options, nodes, type, ReduceOp::kAvg, inputs,
                      in_place);
  };
  const auto reference = run(make_inproc_group(size), false);
  for (const Bytes& output : reference) EXPECT_EQ(output, reference[0]);
  for (const std::int64_t segment : {1, 384, 5000, 65536}) {
    options.segment_numel = segment;
    EXPECT_EQ(run(make_inproc_group(size), segment == 384), reference) << segment;
  }
  options.segment_numel = 512;
  const Counts counts = counts_for(nodes)[4];
  const auto scatter = [&](Transports transports, bool in_place) {
    return reduce_scatter(std::move(transports), options, nodes, type, ReduceOp::kSum, inputs,
                          counts, in_place);
  };
  const auto scattered = scatter(make_inproc_group(size), false);
  for (int late = 0; late < size; ++late) {
    EXPECT_EQ(run(make_slow_group(size, late, 5 + late), true), reference) << "late is " << late;
    EXPECT_EQ(scatter(make_slow_group(size, late, late), true), scattered) << "late is " << late;
  }
}

/// Has room for one step's messages and no more.
class NarrowTransport final : public SlowTransport {
 public:
  NarrowTransport(std::unique_ptr<Transport> inner, int room)
      : SlowTransport(std::move(inner), -1, 1), room_(room) {}
  int send_buffer_limit(std::size_t) const override { return room_; }

 private:
  int room_;
};

/// A group whose ranks have as little room as a call may have: what fewer would be refused.
Transports make_narrow_group(const Nodes& nodes, int room) {
  Transports transports = make_inproc_group(static_cast<int>(nodes.size()));
  for (auto& transport : transports) {
    transport = std::make_unique<NarrowTransport>(std::move(transport), room);
  }
  return transports;
}

TEST_P(TwoLevel, AWindowOfOneStepIsEnough) {
  const Nodes& nodes = GetParam();
  const auto size = static_cast<int>(nodes.size());
  const DataType type = DataType::kFloat32;
  const auto inputs = make_inputs(Family::kNormal, type, 30000, size, 3);
  Options options = two_levels();
  options.segment_numel = 256;
  const auto reference =
      all_reduce(make_inproc_group(size), options, nodes, type, ReduceOp::kSum, inputs);
  // The least room that is not refused.
  int room = 1;
  for (;; ++room) {
    const auto outcomes = run_ranks(
        make_narrow_group(nodes, room), options,
        [&](Communicator& comm) {
          Bytes out = inputs[0];
          comm.all_reduce(inputs[0].data(), out.data(), 30000, type, ReduceOp::kSum);
        },
        Topology(nodes));
    const bool refused = std::any_of(outcomes.begin(), outcomes.end(),
                                     [](const Outcome& o) { return o.error.has_value(); });
    if (!refused) break;
    ASSERT_LT(room, 100);
  }
  EXPECT_GT(room, 1);
  for (const int more : {0, 1, 5}) {
    EXPECT_EQ(all_reduce(make_narrow_group(nodes, room + more), options, nodes, type,
                         ReduceOp::kSum, inputs),
              reference);
    const Counts counts(nodes.size(), 30000 / size);
    const auto scattered = reduce_scatter(make_inproc_group(size), options, nodes, type,
                                          ReduceOp::kSum, inputs, counts);
    EXPECT_EQ(reduce_scatter(make_narrow_group(nodes, room + more), options, nodes, type,
                             ReduceOp::kSum, inputs, counts),
              scattered);
  }
}

TEST(TwoLevelStochastic, RepeatsAndKeepsReplicasAlikeAndIsUnbiased) {
  const Nodes nodes = {0, 0, 0, 1, 1};
  Options options = two_levels();
  options.stochastic_rounding = true;
  options.seed = 42;
  const auto inputs = make_inputs(Family::kNormal, DataType::kFloat32, 30000, 5, 1);
  const auto run = [&](Transports transports) {
    return all_reduce(std::move(transports), options, nodes, DataType::kFloat32, ReduceOp::kSum,
                      inputs);
  };
  const auto once = run(make_inproc_group(5));
  for (const Bytes& output : once) EXPECT_EQ(output, once[0]);
  options.segment_numel = 640;
  EXPECT_EQ(run(make_slow_group(5, 1, 9)), once);
  // A stage that drew another's numbers again would round alike twice, and the mean would drift.
  double error = 0;
  double scale = 0;
  for (options.seed = 100; options.seed < 120; ++options.seed) {
    const Bytes output = run(make_inproc_group(5))[0];
    for (std::int64_t i = 0; i < 30000; ++i) {
      double exact = 0;
      for (const Bytes& input : inputs) exact += value_at(input, DataType::kFloat32, i);
      const double difference = value_at(output, DataType::kFloat32, i) - exact;
      error += difference;
      scale += difference * difference;
    }
  }
  // The mean of n independent errors is within 5 of its standard deviations of 0.
  EXPECT_LT(std::abs(error), 5 * std::sqrt(scale));
  EXPECT_GT(scale, 0);
}

/// Encoded bytes between nodes that each node's ranks counted together.
std::vector<double> egress(const Nodes& nodes, const Options& options, Operation operation,
                           const std::function<void(Communicator&)>& call) {
  std::vector<std::int64_t> by_rank(nodes.size());
  expect_success(run_ranks(
      make_inproc_group(static_cast<int>(nodes.size())), options,
      [&](Communicator& comm) {
        call(comm);
        const Stats stats = comm.stats();
        by_rank[comm.rank()] = of(stats, operation).wire_bytes_between_nodes;
        EXPECT_LE(by_rank[comm.rank()], of(stats, operation).wire_bytes);
      },
      Topology(nodes)));
  std::vector<double> by_node(node_count(nodes));
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) by_node[nodes[rank]] += by_rank[rank];
  return by_node;
}

TEST(TwoLevelEgress, IsTheFormulaOnEveryNodeHoweverManyRanksItHas) {
  const std::int64_t count = 3 << 20;
  for (const Nodes& nodes : kTopologies) {
    const double m = node_count(nodes);
    if (m == 1) continue;
    SCOPED_TRACE(name_of(nodes));
    const Bytes input(count * 4);
    const std::vector<float> values(count, 1.0f);
    for (const bool quantized : {true, false}) {
      Options options = two_levels();
      if (!quantized) options.min_numel = count + 1;
      const double message =
          quantized ? WireLayout(options.format, count).total_bytes() : 4.0 * count;
      const auto all_reduced =
          egress(nodes, options, Operation::kAllReduce, [&](Communicator& comm) {
            std::vector<float> data = values;
            comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kSum);
          });
      for (const double bytes : all_reduced) {
        EXPECT_NEAR(bytes / (2 * (m - 1) / m * message), 1, 0.01);
      }
      // The caller's chunks: a share a node.
      Counts counts;
      for (const int node : nodes) {
        counts.push_back(count / node_count(nodes) / std::ssize(ranks_of(nodes, node)));
      }
      const auto scattered =
          egress(nodes, options, Operation::kReduceScatter, [&](Communicator& comm) {
            std::vector<float> out(counts[comm.rank()]);
            const std::vector<const void*> in(nodes.size(), values.data());
            comm.reduce_scatter(in, counts, out.data(), DataType::kFloat32, ReduceOp::kSum);
          });
      const auto gathered = egress(nodes, options, Operation::kAllGather, [&](Communicator& comm) {
        std::vector<std::vector<float>> buffers;
        std::vector<void*> out;
        for (const std::int64_t c : counts) buffers.emplace_back(c);
        for (auto& buffer : buffers) out.push_back(buffer.data());
        comm.all_gather(values.data(), out, counts, DataType::kFloat32);
      });
      for (const double bytes : scattered) EXPECT_NEAR(bytes / ((m - 1) / m * message), 1, 0.01);
      for (const double bytes : gathered) EXPECT_NEAR(bytes / ((m - 1) / m * message), 1, 0.01);
    }
  }
}

TEST(TwoLevelEgress, IsThatOfTheFlatAlgorithmByOption) {
  const std::int64_t count = 1 << 20;
  Options options = quantize_all();
  options.algorithm = Algorithm::kFlat;
  const Nodes nodes = {0, 0, 1, 1};
  const auto flat = egress(nodes, options, Operation::kAllReduce, [&](Communicator& comm) {
    std::vector<float> data(count, 1.0f);
    comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kSum);
  });
  const double message = WireLayout(options.format, count).total_bytes();
  for (const double bytes : flat) EXPECT_NEAR(bytes / (2 * 2 * 0.5 * message), 1, 0.01);
}

}  // namespace
}  // namespace agoq::testing
