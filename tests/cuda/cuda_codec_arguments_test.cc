// What CudaCodec refuses, before any kernel starts.
#include <gtest/gtest.h>

#include <array>

#include "agoqcomm/cuda_codec.h"
#include "cuemu/cuemu.h"
#include "expect_refused.h"

namespace agoq::testing {
namespace {

constexpr DataType kFloat32 = DataType::kFloat32;
constexpr DataType kBfloat16 = DataType::kBfloat16;

class CudaCodecArguments : public ::testing::Test {
 protected:
  const CudaCodec codec_{BlockFormat{}};
  alignas(64) float values_[256] = {};
  alignas(64) std::byte encoded_[512] = {};
  const std::byte* pieces_[2] = {nullptr, encoded_};
};

TEST_F(CudaCodecArguments, NothingStartsForNoElements) {
  const std::uint64_t before = cuemu::launches();
  codec_.encode(nullptr, kFloat32, 0, nullptr, nullptr);
  codec_.decode(nullptr, 0, nullptr, kBfloat16, nullptr);
  codec_.decode_accumulate(nullptr, 0, nullptr, nullptr);
  const std::byte* none[] = {nullptr, nullptr};
  codec_.sum_decode({none, nullptr, kFloat32, 1}, 0, 1.0f, nullptr, kFloat32, nullptr);
  codec_.sum_encode({none}, 0, 1.0f, nullptr, nullptr, kFloat32, nullptr);
  codec_.sum_decode(std::span<const DeviceSumSegment>{}, {}, nullptr);
  EXPECT_EQ(cuemu::launches(), before);
}

TEST_F(CudaCodecArguments, ConstructionIsChecked) {
  expect_refused("block is 100", [] { CudaCodec(BlockFormat{.block = 100}); });
  expect_refused("max_thread_blocks", [] { CudaCodec(BlockFormat{}, -1); });
}

TEST_F(CudaCodecArguments, BuffersCountsAndTypesAreChecked) {
  expect_refused("count is -1", [&] { codec_.encode(values_, kFloat32, -1, encoded_, nullptr); });
  expect_refused("buffer of elements is null",
                 [&] { codec_.encode(nullptr, kFloat32, 1, encoded_, nullptr); });
  expect_refused("encoded bytes is null",
                 [&] { codec_.encode(values_, kFloat32, 1, nullptr, nullptr); });
  expect_refused("aligned to 4",
                 [&] { codec_.decode(encoded_ + 2, 1, values_, kFloat32, nullptr); });
  expect_refused("int32 cannot be encoded",
                 [&] { codec_.encode(values_, DataType::kInt32, 1, encoded_, nullptr); });
  expect_refused("decode_accumulate: the buffer",
                 [&] { codec_.decode_accumulate(encoded_, 1, nullptr, nullptr); });
}

TEST_F(CudaCodecArguments, OneBadSegmentStopsTheWholeList) {
  const DeviceEncodeSegment segments[] = {{values_, encoded_, 8, 0}, {values_, nullptr, 8, 0}};
  expect_refused("encoded bytes is null", [&] { codec_.encode(segments, kFloat32, nullptr); });
}

TEST_F(CudaCodecArguments, PiecesAreChecked) {
  const auto sum = [&](const Pieces& pieces) {
    codec_.sum_decode(pieces, 8, 1.0f, values_ + 128, kFloat32, nullptr);
  };
  expect_refused("no pieces", [&] { sum({}); });
  expect_refused("own_rank is 2", [&] { sum({pieces_, values_, kFloat32, 2}); });
  expect_refused("own_rank is -1", [&] { sum({pieces_, values_, kFloat32, -1}); });
  expect_refused("own_rank is 0", [&] { sum({pieces_, nullptr, kFloat32, 0}); });
  expect_refused("encoded bytes is null", [&] { sum({pieces_, values_, kFloat32, 1}); });
  expect_refused("owner's piece of type float64",
                 [&] { sum({pieces_, values_, DataType::kFloat64, 0}); });
}

TEST_F(CudaCodecArguments, SegmentsHaveAsManyPieces) {
  const std::byte* one[] = {encoded_};
  const std::byte* two[] = {encoded_, encoded_};
  DeviceSumSegment segments[2];
  for (DeviceSumSegment& segment : segments) {
    segment.values = values_;
    segment.count = 8;
  }
  segments[0].pieces = one;
  segments[1].pieces = two;
  expect_refused("1 and 2 pieces", [&] { codec_.sum_decode(segments, {}, nullptr); });
}

TEST_F(CudaCodecArguments, TooManyPiecesAreToldTheWayAround) {
  std::array<const std::byte*, CudaCodec::kMaxPieces + 1> pieces;
  pieces.fill(encoded_);
  expect_refused(ErrorCode::kUnsupported, "may start from its fp32 sum",
                 [&] { codec_.sum_decode({pieces}, 8, 1.0f, values_, kFloat32, nullptr); });
}

TEST_F(CudaCodecArguments, OutputsReplaceInputsOfTheSameSizeOnly) {
  expect_refused("cannot replace the owner's piece", [&] {
    codec_.sum_decode({pieces_, values_, kFloat32, 0}, 8, 1.0f, values_, kBfloat16, nullptr);
  });
}

TEST_F(CudaCodecArguments, ASumReplacesWholePiecesOnly) {
  expect_refused("overlaps a part of piece 1; it may be all of a piece's memory", [&] {
    codec_.sum_encode({pieces_, values_, kFloat32, 0}, 8, 1.0f, encoded_ + 4, nullptr, kFloat32,
                      nullptr);
  });
}

TEST_F(CudaCodecArguments, RoundingIsCheckedWhereItIsUsed) {
  const auto encode = [&](const Rounding& rounding) {
    codec_.encode(values_, kFloat32, 8, encoded_, nullptr, rounding);
  };
  encode({.stochastic = false, .rank = 1u << 24});
  expect_refused("rank must be below", [&] { encode({.stochastic = true, .rank = 1u << 24}); });
  expect_refused("stage must be below", [&] { encode({.stochastic = true, .stage = 256}); });
  expect_refused("first_element", [&] { encode({.stochastic = true, .first_element = -1}); });
}

}  // namespace
}  // namespace agoq::testing
