// The numeric contract, checked against double precision and, where it fixes bits, against bits.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "agoqcomm/codec.h"
#include "agoqcomm/wire_layout.h"
#include "codec_testing.h"
#include "element_oracle.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace agoq::testing {
namespace {

constexpr std::uint32_t kNan = 0x7fc00000u;

/// Scale `b` of encoded bytes, as a number.
float scale_at(const BlockFormat& format, const Bytes& encoded, std::int64_t count,
               std::int64_t b) {
  const std::byte* scales = encoded.data() + WireLayout(format, count).scale_offset();
  std::uint32_t raw = 0;
  if (format.scale == ScaleType::kBfloat16) {
    std::uint16_t upper;
    std::memcpy(&upper, scales + 2 * b, 2);
    raw = static_cast<std::uint32_t>(upper) << 16;
  } else {
    std::memcpy(&raw, scales + 4 * b, 4);
  }
  return from_bits(raw);
}

/// The contract's scale for a block's largest magnitude, by way of double.
float scale_oracle(double absmax, double largest_code, ScaleType type) {
  auto scale = static_cast<float>(absmax / largest_code);
  if (type == ScaleType::kBfloat16) {
    while (scale != bfloat16_to_float(float_to_bfloat16(scale)))
      scale = std::nextafter(scale, HUGE_VALF);
  }
  return scale < 0x1p-100f ? 0.0f : scale;
}

class CodecContract : public ::testing::TestWithParam<std::tuple<CpuIsa, ElementFormat>> {
 protected:
  BlockFormat format_with(int block = 128, ScaleType scale = ScaleType::kBfloat16) const {
    return {.element = std::get<1>(GetParam()), .block = block, .scale = scale};
  }
  Codec codec(const BlockFormat& format) const { return Codec(format, std::get<0>(GetParam())); }
  Codec codec() const { return codec(format_with()); }
  int code_of(const Bytes& encoded, std::int64_t i) const {
    return code_at(encoded, i, oracle_.bits);
  }
  double number_of(int code) const { return oracle_.decoded[static_cast<std::size_t>(code)]; }

  const ElementOracle oracle_ = element_oracle(std::get<1>(GetParam()));
};

TEST_P(CodecContract, ScalesCodesAndErrorsAreTheOnesStated) {
  for (const int block : kBlocks) {
    for (const ScaleType scale_type : kScaleTypes) {
      const BlockFormat format = format_with(block, scale_type);
      for (const Family family : {Family::kNormal, Family::kEveryExponent, Family::kMixedExponents,
                                  Family::kTies, Family::kNegative, Family::kSubnormal}) {
        const std::int64_t count = 8 * block + 7;
        const Bytes input = make_input(family, DataType::kFloat32, count, 5);
        const std::vector<float> x = to_floats(input, DataType::kFloat32);
        const Bytes encoded = encode(codec(format), input, DataType::kFloat32);
        const std::vector<float> y = decode(codec(format), encoded, count);
        for (std::int64_t first = 0; first < count; first += block) {
          const std::int64_t last = std::min<std::int64_t>(first + block, count);
          double absmax = 0;
          bool finite = true;
          for (std::int64_t i = first; i < last; ++i) {
            absmax = std::max(absmax, std::abs(static_cast<double>(x[i])));
            finite = finite && std::isfinite(x[i]);
          }
          if (!finite) continue;  // kEveryExponent reaches infinity; NaN blocks are tested below
          const float scale = scale_at(format, encoded, count, first / block);
          ASSERT_EQ(scale, scale_oracle(absmax, oracle_.largest, scale_type)) << absmax;
          for (std::int64_t i = first; i < last; ++i) {
            const int code = code_of(encoded, i);
            ASSERT_TRUE(oracle_.numbers[static_cast<std::size_t>(code)].has_value()) << code;
            if (scale == 0) {
              ASSERT_EQ(code, 0);
              ASSERT_EQ(bits(y[i]), 0u);
              continue;
            }
            // Two correctly rounded operations before the code is chosen, one after.
            const double exact = static_cast<double>(x[i]) / scale;
            const double least = std::abs(number_of(nearest_code(oracle_, exact)) - exact);
            ASSERT_LE(std::abs(number_of(code) - exact), least + 256 * 0x1p-23) << x[i];
            ASSERT_EQ(bits(y[i]), bits(static_cast<float>(number_of(code) * scale)));
          }
        }
      }
    }
  }
}

TEST_P(CodecContract, TheLargestElementTakesTheOutermostCode) {
  const BlockFormat format = format_with(128, ScaleType::kFloat32);
  std::vector<float> x(128, 0.001f);
  x[77] = -3.7f;
  const Bytes encoded = encode(codec(format), to_bytes(x), DataType::kFloat32);
  EXPECT_EQ(number_of(code_of(encoded, 77)), -oracle_.largest);
}

TEST_P(CodecContract, ScalesBelowTheSmallestBecomeZero) {
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(32, scale);
    const auto scale_of = [&](float absmax) {
      const std::vector<float> x(32, -absmax);
      return scale_at(format, encode(codec(format), to_bytes(x), DataType::kFloat32), 32, 0);
    };
    const float limit = static_cast<float>(oracle_.largest) * 0x1p-100f;
    EXPECT_EQ(scale_of(limit), 0x1p-100f);
    EXPECT_EQ(scale_of(0.99f * limit), 0.0f);
    EXPECT_EQ(scale_of(FLT_MIN), 0.0f);
    EXPECT_EQ(scale_of(from_bits(1)), 0.0f);
  }
}

TEST_P(CodecContract, ZerosOfEitherSignDecodeToPlusZero) {
  const Bytes input = make_input(Family::kZeros, DataType::kFloat32, 200, 1);
  const Bytes encoded = encode(codec(), input, DataType::kFloat32);
  EXPECT_EQ(encoded, Bytes(encoded.size(), std::byte{0}));
  for (const float y : decode(codec(), encoded, 200)) EXPECT_EQ(bits(y), 0u);
  // A small negative element of an ordinary block as well.
  std::vector<float> x(128, -1e-6f);
  x[0] = 1.0f;
  EXPECT_EQ(bits(decode(codec(), encode(codec(), to_bytes(x), DataType::kFloat32), 128)[1]), 0u);
}

TEST_P(CodecContract, OneNanOrInfinityMakesItsBlockNanAndNoOther) {
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(32, scale);
    for (const std::uint32_t bad :
         {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc12345u, 0x7f800001u, 0xffffffffu}) {
      for (const std::size_t at : {0u, 17u, 31u}) {
        std::vector<float> x(96, 1.5f);
        x[32 + at] = from_bits(bad);
        const Bytes encoded = encode(codec(format), to_bytes(x), DataType::kFloat32);
        EXPECT_EQ(bits(scale_at(format, encoded, 96, 1)), kNan);
        for (std::int64_t i = 32; i < 64; ++i) EXPECT_EQ(code_of(encoded, i), 0);
        for (const DataType type : kTypes) {
          Bytes out(96 * size_of(type));
          codec(format).decode(encoded.data(), 96, out.data(), type);
          for (std::size_t i = 0; i < 96; ++i) {
            std::uint32_t raw = 0;
            std::memcpy(&raw, out.data() + i * size_of(type), size_of(type));
            const std::uint32_t nan = type == DataType::kFloat32    ? kNan
                                      : type == DataType::kBfloat16 ? 0x7fc0u
                                                                    : 0x7e00u;
            if (i / 32 == 1) {
              EXPECT_EQ(raw, nan);
            } else {
              EXPECT_NE(raw, nan);
            }
          }
        }
      }
    }
  }
}

TEST_P(CodecContract, PaddingNeverTravelsAndGapsAreZero) {
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(128, scale);
    std::vector<float> x(129, 1.0f);
    const Bytes encoded = encode(codec(format), to_bytes(x), DataType::kFloat32);
    const WireLayout layout(format, 129);
    ASSERT_EQ(static_cast<std::int64_t>(encoded.size()), layout.total_bytes());
    for (std::int64_t i = layout.code_bytes(); i < layout.scale_offset(); ++i) {
      EXPECT_EQ(encoded[static_cast<std::size_t>(i)], std::byte{0});
    }
    EXPECT_EQ(scale_at(format, encoded, 129, 1), scale_oracle(1.0, oracle_.largest, scale));
  }
}

/// The contract's sum: fp32, rank order, one rounding an addition; then the factor.
std::vector<float> sum_oracle(const std::vector<std::vector<float>>& pieces, float factor) {
  std::vector<float> sum = pieces[0];
  for (std::size_t rank = 1; rank < pieces.size(); ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + pieces[rank][i];
  }
  for (float& x : sum) {
    if (factor != 1.0f) x = x * factor;
    if (std::isnan(x)) x = from_bits(kNan);
  }
  return sum;
}

TEST_P(CodecContract, SumsRunInRankOrderWithTheOwnPieceUnencoded) {
  constexpr std::int64_t kCount = 300;
  for (const Family family : {Family::kNormal, Family::kSpecials, Family::kZeros,
                              Family::kMixedExponents, Family::kLargest}) {
    for (const DataType type : kTypes) {
      for (int ranks = 1; ranks <= 5; ++ranks) {
        for (int own_rank = -1; own_rank < ranks; ++own_rank) {
          std::vector<Bytes> encoded;
          std::vector<const std::byte*> pointers;
          std::vector<std::vector<float>> pieces;
          Bytes own;
          for (int rank = 0; rank < ranks; ++rank) {
            const Bytes input = make_input(family, type, kCount, 11u * ranks + rank);
            encoded.push_back(encode(codec(), input, type));
            if (rank == own_rank) own = input;
            pieces.push_back(rank == own_rank ? to_floats(input, type)
                                              : decode(codec(), encoded.back(), kCount));
          }
          for (const Bytes& piece : encoded) pointers.push_back(piece.data());
          const Pieces all{pointers, own_rank < 0 ? nullptr : own.data(), type, own_rank};
          const float factor = ranks % 2 == 0 ? 1.0f / static_cast<float>(ranks) : 1.0f;
          const Bytes expected = to_bytes(sum_oracle(pieces, factor));

          Bytes sum(4 * kCount);
          codec().sum_decode(all, kCount, factor, sum.data(), DataType::kFloat32);
          ASSERT_TRUE(sum == expected) << ranks << " ranks, owner " << own_rank;

          // sum_encode is encode of that sum, and gives back what others will decode.
          const Bytes expected_encoded = encode(codec(), sum, DataType::kFloat32);
          Bytes out(expected_encoded.size());
          codec().sum_encode(all, kCount, factor, out.data(), sum.data(), DataType::kFloat32);
          ASSERT_TRUE(out == expected_encoded) << ranks << " ranks, owner " << own_rank;
          ASSERT_TRUE(sum == to_bytes(decode(codec(), out, kCount)));
        }
      }
    }
  }
}

TEST_P(CodecContract, SumsMayReplaceTheOwnPiece) {
  for (const DataType type : kTypes) {
    for (const std::int64_t count : {1, 127, 128, 640, 1000}) {
      const Bytes own = make_input(Family::kNormal, type, count, 1);
      const Bytes other = encode(codec(), make_input(Family::kNormal, type, count, 2), type);
      const std::byte* pieces[] = {nullptr, other.data()};
      Bytes apart(own.size());
      Bytes in_place = own;
      Bytes encoded(static_cast<std::size_t>(WireLayout(format_with(), count).total_bytes()));
      codec().sum_encode({pieces, own.data(), type, 0}, count, 1.0f, encoded.data(), apart.data(),
                         type);
      codec().sum_encode({pieces, in_place.data(), type, 0}, count, 1.0f, encoded.data(),
                         in_place.data(), type);
      EXPECT_EQ(in_place, apart);
      in_place = own;
      codec().sum_decode({pieces, own.data(), type, 0}, count, 1.0f, apart.data(), type);
      codec().sum_decode({pieces, in_place.data(), type, 0}, count, 1.0f, in_place.data(), type);
      EXPECT_EQ(in_place, apart);
    }
  }
}

TEST_P(CodecContract, ANanInAShortLastBlockStaysThere) {
  std::vector<float> x(130, 1.0f);
  const Bytes clean = encode(codec(), to_bytes(x), DataType::kFloat32);
  x[129] = NAN;
  const Bytes bad = encode(codec(), to_bytes(x), DataType::kFloat32);
  const std::byte* pieces[] = {clean.data(), bad.data()};
  std::vector<float> sum(130);
  codec().sum_decode({pieces}, 130, 1.0f, sum.data(), DataType::kFloat32);
  EXPECT_FALSE(std::isnan(sum[127]));
  EXPECT_EQ(bits(sum[128]), kNan);
  EXPECT_EQ(bits(sum[129]), kNan);
}

TEST_P(CodecContract, LongOutputsDecodeLikeShortOnes) {
  // From 16 MiB up stores go past the caches, at any alignment of the output.
  const std::int64_t count = (std::int64_t{4} << 20) + 1000;
  const Bytes input = make_input(Family::kNormal, DataType::kFloat32, 128 * 50, 1);
  Bytes values(static_cast<std::size_t>(4 * count));
  for (std::size_t i = 0; i < values.size(); i += input.size()) {
    std::memcpy(values.data() + i, input.data(), std::min(input.size(), values.size() - i));
  }
  const Bytes encoded = encode(codec(), values, DataType::kFloat32);
  const std::vector<float> expected =
      decode(codec(), encode(codec(), input, DataType::kFloat32), 128 * 50);
  for (const int misalignment : {0, 4, 52, 1}) {
    GuardedBuffer out(4 * count, misalignment);
    codec().decode(encoded.data(), count, out.data(), DataType::kFloat32);
    out.expect_intact();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count / 128 * 128; ++i) {
      wrong += bits(load_value<DataType::kFloat32>(out.data(), i)) !=
               bits(expected[static_cast<std::size_t>(i % (128 * 50))]);
    }
    EXPECT_EQ(wrong, 0) << "misaligned by " << misalignment;
  }
}

#if defined(__x86_64__)
TEST_P(CodecContract, AProcessThatFlushesSubnormalsAgrees) {
  constexpr std::int64_t kCount = 64 * 300;
  for (const ScaleType scale : kScaleTypes) {
    const BlockFormat format = format_with(64, scale);
    for (const Family family : {Family::kEveryExponent, Family::kSubnormal}) {
      for (const DataType type : kTypes) {
        const Bytes input = make_input(family, type, kCount, 3);
        const Bytes expected = encode(codec(format), input, type);
        const Bytes expected_values = to_bytes(decode(codec(format), expected, kCount));
        const unsigned mode = _mm_getcsr();
        _mm_setcsr(mode | 0x8040u);  // flush results, take operands for zero
        const Bytes encoded = encode(codec(format), input, type);
        const Bytes values = to_bytes(decode(codec(format), encoded, kCount));
        _mm_setcsr(mode);
        EXPECT_TRUE(encoded == expected) << format.name() << to_string(type);
        EXPECT_TRUE(values == expected_values) << format.name() << to_string(type);
      }
    }
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Isa, CodecContract,
                         ::testing::Combine(::testing::ValuesIn(supported_isas()),
                                            ::testing::ValuesIn(kElements)),
                         [](const auto& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_" +
                                  std::string(to_string(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace agoq::testing
