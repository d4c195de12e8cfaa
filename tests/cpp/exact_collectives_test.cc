// What is not quantized: every element type and operation, in rank order, over the same engine.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "collective/exact_reduce.h"
#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {
namespace {

constexpr ReduceOp kAllOps[] = {ReduceOp::kSum,     ReduceOp::kAvg,   ReduceOp::kPremulSum,
                                ReduceOp::kProduct, ReduceOp::kMin,   ReduceOp::kMax,
                                ReduceOp::kBitAnd,  ReduceOp::kBitOr, ReduceOp::kBitXor};

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> reduce(DataType type, ReduceOp op, const std::vector<std::vector<T>>& pieces,
                      float factor = 1.0f) {
  std::vector<const void*> pointers;
  for (const std::vector<T>& piece : pieces) pointers.push_back(piece.data());
  std::vector<T> out(pieces[0].size());
  exact_reduce(pointers, out.size(), type, op, factor, static_cast<int>(pieces.size()), out.data());
  return out;
}

TEST(ExactReduce, IntegersWrapAndAverageTowardsZero) {
  using I = std::vector<std::int32_t>;
  const std::vector<I> in = {{7, -7, INT32_MAX}, {2, -2, 1}, {1, -1, 0}};
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kSum, in), (I{10, -10, INT32_MIN}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kAvg, in), (I{3, -3, INT32_MIN / 3}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kProduct, in), (I{14, -14, 0}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kMin, in), (I{1, -7, 0}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kMax, in), (I{7, -1, INT32_MAX}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kBitAnd, in), (I{0, -8, 0}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kBitOr, in), (I{7, -1, INT32_MAX}));
  EXPECT_EQ(reduce(DataType::kInt32, ReduceOp::kBitXor, in), (I{4, -8, INT32_MAX - 1}));
  using B = std::vector<std::uint8_t>;
  EXPECT_EQ(reduce<std::uint8_t>(DataType::kUint8, ReduceOp::kSum, {{200}, {100}}), B{44});
  EXPECT_EQ(reduce<std::uint8_t>(DataType::kUint8, ReduceOp::kProduct, {{200}, {100}}), B{32});
  using S = std::vector<std::int16_t>;
  EXPECT_EQ(reduce<std::int16_t>(DataType::kInt16, ReduceOp::kProduct, {{-300}, {300}}),
            S{static_cast<std::int16_t>(-90000)});
  using L = std::vector<std::int64_t>;
  EXPECT_EQ(reduce<std::int64_t>(DataType::kInt64, ReduceOp::kMax, {{INT64_MIN}, {-5}}), L{-5});
  using C = std::vector<std::int8_t>;
  // -200 wraps to 56 before it is divided.
  EXPECT_EQ(reduce<std::int8_t>(DataType::kInt8, ReduceOp::kAvg, {{-100}, {-100}}), C{28});
}

TEST(ExactReduce, BoolIsLogical) {
  using B = std::vector<std::uint8_t>;
  const std::vector<B> in = {{0, 0, 1, 2}, {0, 1, 0, 1}};  // Any byte but 0 is true.
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBitOr}) {
    EXPECT_EQ(reduce(DataType::kBool, op, in), (B{0, 1, 1, 1}));
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBitAnd}) {
    EXPECT_EQ(reduce(DataType::kBool, op, in), (B{0, 0, 0, 1}));
  }
  EXPECT_EQ(reduce(DataType::kBool, ReduceOp::kBitXor, in), (B{0, 1, 1, 0}));
}

TEST(ExactReduce, MinAndMaxPassANanOnFromEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> in = {{nan, 1, 2, -0.0f}, {1, nan, 3, 1}};
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const std::vector<float> out = reduce(DataType::kFloat32, op, in);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_TRUE(std::isnan(out[1]));
    EXPECT_EQ(out[2], op == ReduceOp::kMin ? 2.0f : 3.0f);
  }
  const double dnan = nan;
  EXPECT_TRUE(std::isnan(reduce<double>(DataType::kFloat64, ReduceOp::kMax, {{dnan}, {1}})[0]));
}

TEST(ExactReduce, NarrowFloatsAreSummedInFp32AndRoundedOnce) {
  // In bf16 arithmetic 256 + 1 stays 256, however often.
  std::vector<std::vector<std::uint16_t>> in = {{float_to_bfloat16(256.0f)}};
  for (int i = 0; i < 4; ++i) in.push_back({float_to_bfloat16(1.0f)});
  EXPECT_EQ(bfloat16_to_float(reduce(DataType::kBfloat16, ReduceOp::kSum, in)[0]), 260.0f);
  // 65504 + 65504 overflows fp16, its average does not.
  const std::uint16_t largest = float_to_float16(65504.0f);
  EXPECT_EQ(reduce<std::uint16_t>(DataType::kFloat16, ReduceOp::kAvg, {{largest}, {largest}})[0],
            largest);
  EXPECT_EQ(reduce<std::uint16_t>(DataType::kFloat16, ReduceOp::kPremulSum, {{largest}, {largest}},
                                  0.5f)[0],
            largest);
}

TEST(ExactReduce, ComplexNumbers) {
  using C = std::complex<float>;
  const std::vector<std::vector<C>> in = {{{1, 2}}, {{3, -1}}};
  EXPECT_EQ(reduce(DataType::kComplex64, ReduceOp::kSum, in)[0], C(4, 1));
  EXPECT_EQ(reduce(DataType::kComplex64, ReduceOp::kAvg, in)[0], C(2, 0.5));
  EXPECT_EQ(reduce(DataType::kComplex64, ReduceOp::kProduct, in)[0], C(5, 5));
}

TEST(ExactReduce, WhatATypeDoesNotHaveIsRefusedWithWhatItHas) {
  const std::vector<std::pair<DataType, ReduceOp>> refused = {
      {DataType::kFloat32, ReduceOp::kBitAnd},   {DataType::kFloat64, ReduceOp::kBitXor},
      {DataType::kInt32, ReduceOp::kPremulSum},  {DataType::kBool, ReduceOp::kAvg},
      {DataType::kComplex64, ReduceOp::kMin},    {DataType::kOther, ReduceOp::kSum},
      {DataType::kComplex128, ReduceOp::kBitOr}, {DataType::kFloat32, ReduceOp::kNone}};
  for (const auto& [type, op] : refused) {
    const Outcome outcome = outcome_of([&] { check_reducible(type, op); });
    EXPECT_EQ(outcome.error, ErrorCode::kInvalidArgument);
    EXPECT_NE(outcome.words.find(to_string(type)), std::string::npos) << outcome.words;
  }
}

class ExactOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ExactOfSize, ::testing::Values(1, 2, 3, 5));

// The engine moves and cuts; exact_reduce over whole buffers is the oracle.
TEST_P(ExactOfSize, AllReduceAndReduceScatterEqualOneReductionOfTheWhole) {
  const int size = GetParam();
  Options options;
  options.min_numel = std::int64_t{1} << 40;
  options.segment_numel = 1000;
  options.timeout = std::chrono::seconds(60);
  std::vector<DataType> types(std::begin(kTypes), std::end(kTypes));
  for (int i = 3; i < 12; ++i) types.push_back(static_cast<DataType>(i));
  for (const std::int64_t count : {0, 1, 31, 129, 4097}) {
    for (const DataType type : types) {
      for (const ReduceOp op : kAllOps) {
        if (outcome_of([&] { check_reducible(type, op); }).error) continue;
        SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op)) + " " +
                     std::to_string(count));
        const auto bytes = static_cast<std::int64_t>(size_of(type)) * count * size;
        std::vector<Bytes> inputs;
        std::vector<const void*> pointers;
        for (int rank = 0; rank < size; ++rank) {
          // Bytes of small integers: no NaN in any type, and nothing overflows.
          Bytes input(bytes);
          for (std::int64_t i = 0; i < bytes; ++i) input[i] = std::byte((i * 7 + rank * 3) % 61);
          inputs.push_back(std::move(input));
        }
        for (const Bytes& input : inputs) pointers.push_back(input.data());
        Bytes expected(bytes);
        exact_reduce(pointers, count * size, type, op, 0.25f, size, expected.data());
        const CallOptions call{.timeout = {}, .factor = 0.25f};
        expect_success(run_ranks(make_slow_group(size, -1, 3), options, [&](Communicator& comm) {
          Bytes in_place = inputs[comm.rank()];
          comm.all_reduce(in_place.data(), in_place.data(), count * size, type, op, call);
          EXPECT_TRUE(in_place == expected);
          const Bytes& input = inputs[comm.rank()];
          std::vector<const void*> chunks;
          for (int rank = 0; rank < size; ++rank) {
            chunks.push_back(input.data() + rank * count * size_of(type));
          }
          Bytes own(count * size_of(type));
          const std::vector<std::int64_t> counts(size, count);
          comm.reduce_scatter(chunks, counts, own.data(), type, op, call);
          EXPECT_TRUE(own == slice(expected, type, comm.rank() * count, count));
        }));
      }
    }
  }
}

}  // namespace
}  // namespace agoq::testing
