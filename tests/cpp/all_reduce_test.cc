// Quantized all-reduce against the numeric contract.
#include <gtest/gtest.h>

#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

constexpr float kPremul = 0.37f;
constexpr ReduceOp kSums[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kPremulSum};

CallOptions call_of(ReduceOp op) {
  return op == ReduceOp::kPremulSum ? CallOptions{.timeout = {}, .factor = kPremul} : CallOptions{};
}

/// What each rank holds afterwards.
std::vector<Bytes> all_reduce(std::vector<std::unique_ptr<Transport>> transports,
                              const Options& options, DataType type, ReduceOp op,
                              const std::vector<Bytes>& inputs, bool in_place = false) {
  std::vector<Bytes> outputs = inputs;
  expect_success(run_ranks(std::move(transports), options, [&](Communicator& comm) {
    const Bytes& input = inputs[comm.rank()];
    Bytes& output = outputs[comm.rank()];
    const auto count = static_cast<std::int64_t>(input.size() / size_of(type));
    comm.all_reduce(in_place ? output.data() : input.data(), output.data(), count, type, op,
                    call_of(op));
  }));
  return outputs;
}

class AllReduceOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, AllReduceOfSize, ::testing::ValuesIn(kSizes));

TEST_P(AllReduceOfSize, MeetsTheContractForAllCountsTypesAndSums) {
  const int size = GetParam();
  if (size == 1) return;  // One rank copies: its own test below.
  const Options options = quantize_all();
  const Codec codec(options.format);
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kSums) {
      for (const std::int64_t count : kCounts) {
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op)) + " " +
                     std::to_string(count));
        const auto inputs = make_inputs(Family::kNormal, type, count, size, count + size);
        const Expected expected =
            expected_all_reduce(codec, type, inputs, factor_of(op, size, kPremul));
        for (const Bytes& output : all_reduce(make_inproc_group(size), options, type, op, inputs)) {
          expect_contract(expected, output, type);
        }
      }
    }
  }
}

TEST(AllReduce, OneRankCopiesAndStillAppliesTheFactor) {
  const auto inputs = make_inputs(Family::kNormal, DataType::kBfloat16, 1001, 1, 3);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
    EXPECT_EQ(all_reduce(make_inproc_group(1), quantize_all(), DataType::kBfloat16, op, inputs),
              inputs);
  }
  std::vector<float> scaled;
  for (int i = 0; i < 1001; ++i) {
    scaled.push_back(load_value(DataType::kBfloat16, inputs[0].data(), i) * kPremul);
  }
  EXPECT_EQ(all_reduce(make_inproc_group(1), quantize_all(), DataType::kBfloat16,
                       ReduceOp::kPremulSum, inputs)[0],
            to_type(scaled, DataType::kBfloat16));
}

TEST(AllReduce, ResultDependsOnNeitherSegmentNorTimingNorPlace) {
  const std::int64_t count = 20011;
  for (const int size : {2, 3, 4}) {
    const auto inputs = make_inputs(Family::kSpecials, DataType::kFloat32, count, size, 17);
    Options options = quantize_all();
    const auto reference =
        all_reduce(make_inproc_group(size), options, DataType::kFloat32, ReduceOp::kSum, inputs);
    for (int rank = 1; rank < size; ++rank) EXPECT_EQ(reference[rank], reference[0]);
    for (const std::int64_t segment : {1, 128, 384, 5000, 65536}) {
      options.segment_numel = segment;
      for (const bool in_place : {false, true}) {
        EXPECT_EQ(all_reduce(make_inproc_group(size), options, DataType::kFloat32, ReduceOp::kSum,
                             inputs, in_place),
                  reference)
            << size << " ranks, segments of " << segment << ", in place " << in_place;
      }
    }
    options.segment_numel = 1024;
    for (int late = 0; late < size; ++late) {
      EXPECT_EQ(all_reduce(make_slow_group(size, late, 5 + late), options, DataType::kFloat32,
                           ReduceOp::kSum, inputs, true),
                reference)
          << size << " ranks, late is rank " << late;
    }
  }
}

TEST(AllReduce, BlocksAndScaleTypesAreTheOptions) {
  for (const int block : {32, 1024}) {
    Options options = quantize_all();
    options.format.block = block;
    options.segment_numel = 2000;
    const auto inputs = make_inputs(Family::kNormal, DataType::kFloat32, 9999, 3, block);
    const Expected expected =
        expected_all_reduce(Codec(options.format), DataType::kFloat32, inputs, 1.0f);
    for (const Bytes& output :
         all_reduce(make_inproc_group(3), options, DataType::kFloat32, ReduceOp::kSum, inputs)) {
      expect_contract(expected, output, DataType::kFloat32);
    }
  }
}

TEST(AllReduce, ANanOnOneRankReachesTheSameElementsOfAll) {
  const std::int64_t count = 5000;
  for (const float poison : {NAN, INFINITY, -INFINITY}) {
    auto inputs = make_inputs(Family::kNormal, DataType::kFloat16, count, 3, 23);
    store_value(DataType::kFloat16, inputs[1].data(), 4321, poison);
    const auto outputs = all_reduce(make_inproc_group(3), quantize_all(), DataType::kFloat16,
                                    ReduceOp::kSum, inputs);
    EXPECT_EQ(outputs[1], outputs[0]);
    EXPECT_EQ(outputs[2], outputs[0]);
    for (std::int64_t i = 0; i < count; ++i) {
      // The block of 4321 and no other; chunks start at whole blocks.
      const bool poisoned = i / 128 == 4321 / 128;
      EXPECT_EQ(std::isnan(value_at(outputs[0], DataType::kFloat16, i)), poisoned) << i;
    }
  }
}

TEST(AllReduce, StochasticRoundingRepeatsAndKeepsReplicasAlike) {
  Options options = quantize_all();
  options.stochastic_rounding = true;
  options.seed = 42;
  const auto inputs = make_inputs(Family::kNormal, DataType::kFloat32, 30000, 3, 1);
  const auto once =
      all_reduce(make_inproc_group(3), options, DataType::kFloat32, ReduceOp::kSum, inputs);
  EXPECT_EQ(once[1], once[0]);
  EXPECT_EQ(once[2], once[0]);
  options.segment_numel = 640;
  EXPECT_EQ(
      all_reduce(make_slow_group(3, 1, 9), options, DataType::kFloat32, ReduceOp::kSum, inputs),
      once);
  options.seed = 43;
  EXPECT_NE(all_reduce(make_inproc_group(3), options, DataType::kFloat32, ReduceOp::kSum, inputs),
            once);
}

}  // namespace
}  // namespace agoq::testing
