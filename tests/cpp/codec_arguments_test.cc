// What the codec refuses, and the choice of an ISA.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "agoqcomm/codec.h"
#include "codec_testing.h"
#include "expect_error.h"

namespace agoq::testing {
namespace {

class CodecArguments : public ::testing::Test {
 protected:
  const Codec codec_{BlockFormat{}};
  alignas(64) float values_[256] = {};
  alignas(64) std::byte encoded_[512] = {};
  const std::byte* pieces_[2] = {nullptr, encoded_};
};

TEST_F(CodecArguments, NothingIsTouchedForNoElements) {
  codec_.encode(nullptr, DataType::kFloat32, 0, nullptr);
  codec_.decode(nullptr, 0, nullptr, DataType::kBfloat16);
  codec_.decode_accumulate(nullptr, 0, nullptr);
  const std::byte* none[] = {nullptr, nullptr};
  codec_.sum_decode({none, nullptr, DataType::kFloat32, 1}, 0, 1.0f, nullptr, DataType::kFloat32);
  codec_.sum_decode({none, nullptr, DataType::kBfloat16, 1}, 0, 1.0f, nullptr, DataType::kFloat32);
  codec_.sum_encode({none}, 0, 1.0f, nullptr, nullptr, DataType::kFloat32);
}

TEST_F(CodecArguments, FormatsAreValidated) {
  expect_invalid("block is 100", [] { Codec(BlockFormat{.block = 100}); });
}

TEST_F(CodecArguments, BuffersAndCountsAreChecked) {
  const auto type = DataType::kFloat32;
  expect_invalid("count is -1", [&] { codec_.encode(values_, type, -1, encoded_); });
  expect_invalid("encode: the buffer of elements is null",
                 [&] { codec_.encode(nullptr, type, 1, encoded_); });
  expect_invalid("encoded bytes is null", [&] { codec_.encode(values_, type, 1, nullptr); });
  expect_invalid("aligned to 4", [&] { codec_.encode(values_, type, 1, encoded_ + 2); });
  expect_invalid("aligned to 4", [&] { codec_.decode(encoded_ + 1, 1, values_, type); });
  expect_invalid("decode: the buffer of elements is null",
                 [&] { codec_.decode(encoded_, 1, nullptr, type); });
  expect_invalid("decode_accumulate", [&] { codec_.decode_accumulate(encoded_, 1, nullptr); });
}

TEST_F(CodecArguments, TypesAreChecked) {
  expect_invalid("int32 cannot be encoded; use float32, bfloat16 or float16",
                 [&] { codec_.encode(values_, DataType::kInt32, 1, encoded_); });
  expect_invalid("float64 cannot",
                 [&] { codec_.decode(encoded_, 1, values_, DataType::kFloat64); });
  expect_invalid("an owner's piece of type float64 cannot be encoded", [&] {
    codec_.sum_decode({pieces_, values_, DataType::kFloat64, 0}, 1, 1.0f, values_,
                      DataType::kFloat32);
  });
}

TEST_F(CodecArguments, PiecesAreChecked) {
  const auto type = DataType::kFloat32;
  const auto sum = [&](const Pieces& pieces) {
    codec_.sum_decode(pieces, 8, 1.0f, values_ + 128, type);
  };
  sum({pieces_, values_, type, 0});
  expect_invalid("no pieces", [&] { sum({}); });
  expect_invalid("own_rank is 2", [&] { sum({pieces_, values_, type, 2}); });
  expect_invalid("own_rank is -1", [&] { sum({pieces_, values_, type, -1}); });
  expect_invalid("own_rank is 0", [&] { sum({pieces_, nullptr, type, 0}); });
  expect_invalid("encoded bytes is null", [&] { sum({pieces_, values_, type, 1}); });
  expect_invalid("encoded bytes is null", [&] {
    codec_.sum_encode({pieces_, values_, type, 0}, 8, 1.0f, nullptr, nullptr, type);
  });
}

TEST_F(CodecArguments, ASumMayNotReplaceAnOwnPieceOfSmallerElements) {
  expect_invalid("cannot replace the owner's piece", [&] {
    codec_.sum_decode({pieces_, values_, DataType::kBfloat16, 0}, 8, 1.0f, values_,
                      DataType::kFloat32);
  });
}

TEST_F(CodecArguments, RoundingFieldsAreCheckedWhereTheyAreUsed) {
  const auto encode = [&](const Rounding& rounding) {
    codec_.encode(values_, DataType::kFloat32, 8, encoded_, rounding);
  };
  encode({.stochastic = false, .rank = 1u << 24});
  expect_invalid("rank must be below", [&] { encode({.stochastic = true, .rank = 1u << 24}); });
  expect_invalid("stage must be below", [&] { encode({.stochastic = true, .stage = 256}); });
  expect_invalid("first_element", [&] { encode({.stochastic = true, .first_element = -1}); });
}

class IsaChoice : public ::testing::Test {
 protected:
  IsaChoice() {
    const char* value = std::getenv("AGOQ_CPU_ISA");
    if (value != nullptr) saved_ = value;
  }
  ~IsaChoice() override {
    if (saved_.empty()) {
      ::unsetenv("AGOQ_CPU_ISA");
    } else {
      ::setenv("AGOQ_CPU_ISA", saved_.c_str(), 1);
    }
  }
  std::string saved_;
};

TEST_F(IsaChoice, IsTheBestThereIsByDefault) {
  ::unsetenv("AGOQ_CPU_ISA");
  EXPECT_EQ(selected_cpu_isa(), supported_isas().back());
  EXPECT_EQ(Codec(BlockFormat{}).isa(), supported_isas().back());
}

TEST_F(IsaChoice, FollowsTheVariable) {
  for (const CpuIsa isa : supported_isas()) {
    ::setenv("AGOQ_CPU_ISA", std::string(to_string(isa)).c_str(), 1);
    EXPECT_EQ(Codec(BlockFormat{}).isa(), isa);
  }
  ::setenv("AGOQ_CPU_ISA", "sse9", 1);
  expect_invalid("'sse9'; it may be scalar, avx2 or avx512", [] { Codec(BlockFormat{}); });
}

TEST_F(IsaChoice, RefusesWhatTheCpuLacks) {
  const auto unknown = static_cast<CpuIsa>(77);
  EXPECT_FALSE(is_supported(unknown));
  expect_error(ErrorCode::kUnsupported, "no kernels for the ISA 'unknown'",
               [&] { Codec(BlockFormat{}, unknown); });
}

}  // namespace
}  // namespace agoq::testing
