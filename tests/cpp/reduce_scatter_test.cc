// Quantized reduce-scatter against the numeric contract.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

using Counts = std::vector<std::int64_t>;

/// Uneven on purpose: nothing for some ranks, whole blocks for others.
std::vector<Counts> counts_for(int size) {
  std::vector<Counts> all;
  for (const std::int64_t count : {0, 1, 127, 128, 129, 4097, 9999}) {
    all.push_back(Counts(size, count));
  }
  Counts uneven;
  for (int rank = 0; rank < size; ++rank) uneven.push_back(rank % 3 == 1 ? 0 : 1000 * rank + 129);
  all.push_back(uneven);
  Counts one(size, 0);
  one[0] = 50001;
  all.push_back(one);
  return all;
}

std::vector<Bytes> reduce_scatter(std::vector<std::unique_ptr<Transport>> transports,
                                  const Options& options, DataType type, ReduceOp op, float factor,
                                  const std::vector<Bytes>& inputs, const Counts& counts,
                                  bool in_place = false) {
  std::vector<Bytes> outputs(inputs.size());
  expect_success(run_ranks(std::move(transports), options, [&](Communicator& comm) {
    Bytes input = inputs[comm.rank()];
    Bytes& output = outputs[comm.rank()];
    std::vector<const void*> in;
    std::int64_t offset = 0;
    for (const std::int64_t count : counts) {
      in.push_back(input.data() + offset * size_of(type));
      offset += count;
    }
    output.resize(counts[comm.rank()] * size_of(type));
    void* out = in_place ? const_cast<void*>(in[comm.rank()]) : output.data();
    comm.reduce_scatter(in, counts, out, type, op, {.timeout = {}, .factor = factor});
    if (in_place && !output.empty()) std::memcpy(output.data(), out, output.size());
  }));
  return outputs;
}

class ReduceScatterOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ReduceScatterOfSize, ::testing::Values(2, 3, 4, 5, 8));

TEST_P(ReduceScatterOfSize, MeetsTheContractForAllCountsTypesAndSums) {
  const int size = GetParam();
  Options options = quantize_all();
  options.segment_numel = 4096;
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum}) {
      const float factor = factor_of(op, size, -2.5f);
      for (const Counts& counts : counts_for(size)) {
        const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op)) + " " +
                     std::to_string(total));
        const auto inputs = make_inputs(Family::kNormal, type, total, size, total + 7 * size);
        const auto outputs =
            reduce_scatter(make_inproc_group(size), options, type, op, factor, inputs, counts);
        std::int64_t offset = 0;
        for (int owner = 0; owner < size; ++owner) {
          std::vector<Bytes> pieces;
          for (const Bytes& input : inputs) {
            pieces.push_back(slice(input, type, offset, counts[owner]));
          }
          offset += counts[owner];
          expect_contract(expected_reduced_chunk(codec, type, pieces, owner, factor),
                          outputs[owner], type);
        }
      }
    }
  }
}

TEST(ReduceScatter, ResultDependsOnNeitherSegmentNorTimingNorPlace) {
  const Counts counts = {5000, 0, 12345};
  const auto inputs = make_inputs(Family::kSpecials, DataType::kBfloat16, 17345, 3, 4);
  Options options = quantize_all();
  const auto run = [&](std::vector<std::unique_ptr<Transport>> transports, bool in_place) {
    return reduce_scatter(std::move(transports), options, DataType::kBfloat16, ReduceOp::kAvg, 1.0f,
                          inputs, counts, in_place);
  };
  const auto reference = run(make_inproc_group(3), false);
  for (const std::int64_t segment : {128, 384, 65536}) {
    options.segment_numel = segment;
    EXPECT_EQ(run(make_inproc_group(3), false), reference) << segment;
    EXPECT_EQ(run(make_inproc_group(3), true), reference) << segment;
  }
  options.segment_numel = 512;
  for (int late = 0; late < 3; ++late) {
    EXPECT_EQ(run(make_slow_group(3, late, late), true), reference) << late;
  }
}

TEST(ReduceScatter, OneRankCopies) {
  const auto inputs = make_inputs(Family::kNormal, DataType::kFloat32, 777, 1, 2);
  EXPECT_EQ(reduce_scatter(make_inproc_group(1), quantize_all(), DataType::kFloat32, ReduceOp::kAvg,
                           1.0f, inputs, {777}),
            inputs);
}

}  // namespace
}  // namespace agoq::testing
