// What CudaRowCodec refuses, before its kernel starts.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "agoqcomm/cuda_row_codec.h"
#include "cuemu/cuemu.h"
#include "expect_refused.h"

namespace agoq::testing {
namespace {

constexpr DataType kFloat32 = DataType::kFloat32;
constexpr RowShape kShape{2, 100};

class CudaRowCodecArguments : public ::testing::Test {
 protected:
  void apply(void* out, const RowEpilogue& epilogue) const {
    codec_.apply(values_, kFloat32, kShape, out, nullptr, epilogue);
  }
  void sum(const Pieces& pieces, void* out) const {
    codec_.sum_decode(pieces, kShape, 1.0f, out, kFloat32, nullptr);
  }

  const CudaRowCodec codec_{BlockFormat{}};
  float values_[200] = {};
  float out_[200] = {};
  alignas(8) std::byte encoded_[256] = {};
};

TEST_F(CudaRowCodecArguments, NothingStartsForNoRows) {
  const std::uint64_t before = cuemu::launches();
  codec_.encode(nullptr, kFloat32, {0, 100}, nullptr, nullptr);
  codec_.decode(nullptr, {0, 100}, nullptr, kFloat32, nullptr);
  codec_.apply(nullptr, kFloat32, {0, 100}, nullptr, nullptr, {});
  EXPECT_EQ(cuemu::launches(), before);
}

TEST_F(CudaRowCodecArguments, RowsAndBuffersAreChecked) {
  for (const RowShape shape : {RowShape{2, 0}, RowShape{-1, 128}, RowShape{1, kMaxRowWidth + 1}}) {
    expect_refused("RowLayout",
                   [&] { codec_.encode(values_, kFloat32, shape, encoded_, nullptr); });
    expect_refused("RowLayout",
                   [&] { codec_.decode(encoded_, shape, values_, kFloat32, nullptr); });
  }
  expect_refused("CudaRowCodec::encode: a buffer is null",
                 [&] { codec_.encode(values_, kFloat32, kShape, nullptr, nullptr); });
  expect_refused("buffer of elements is null",
                 [&] { codec_.encode(nullptr, kFloat32, kShape, encoded_, nullptr); });
  expect_refused("aligned to 4",
                 [&] { codec_.encode(values_, kFloat32, kShape, encoded_ + 2, nullptr); });
  expect_refused("aligned to 4",
                 [&] { codec_.decode(encoded_ + 1, kShape, values_, kFloat32, nullptr); });
  expect_refused("int32 cannot be encoded",
                 [&] { codec_.encode(values_, DataType::kInt32, kShape, encoded_, nullptr); });
}

TEST_F(CudaRowCodecArguments, AnEpilogueIsChecked) {
  expect_refused("there is no output", [&] { apply(nullptr, {}); });
  RowEpilogue without_norm;
  without_norm.normed = out_;
  expect_refused("but no norm", [&] { apply(nullptr, without_norm); });
  RowEpilogue outside;
  outside.encoded = {encoded_, 3, 2};
  expect_refused("rows 2 to 4 do not lie within the 3", [&] { apply(nullptr, outside); });
  RowEpilogue by_chance;
  by_chance.encoded = {encoded_, 2, 0};
  by_chance.rounding = {.stochastic = true, .rank = 1u << 24};
  expect_refused("Rounding.rank", [&] { apply(nullptr, by_chance); });
}

TEST_F(CudaRowCodecArguments, PiecesAreChecked) {
  const std::byte* pieces[] = {nullptr, encoded_};
  expect_refused("no pieces", [&] { sum({}, out_); });
  expect_refused("piece of rank 0 is null", [&] { sum({.encoded = pieces}, out_); });
  expect_refused("own_rank is 2",
                 [&] { sum({.encoded = pieces, .own = values_, .own_rank = 2}, out_); });
  expect_refused("both have one type", [&] {
    sum({.encoded = pieces, .own = out_, .own_type = DataType::kFloat16, .own_rank = 0}, out_);
  });
  const std::vector<const std::byte*> many(CudaCodec::kMaxPieces + 1, encoded_);
  expect_refused(ErrorCode::kUnsupported, "257 pieces", [&] { sum({.encoded = many}, out_); });
}

}  // namespace
}  // namespace agoq::testing
