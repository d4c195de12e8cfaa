// Signed integers of up to eight bits, symmetric, packed in two's complement.
#pragma once

#include <cstdint>

#include "format/float_bits.h"
#include "format/packed_codes.h"
#include "format/rounding.h"

namespace agoq {

template <int kCodeBits>
struct SignedInteger {
  static constexpr int kBits = kCodeBits;
  static constexpr int kMax = (1 << (kBits - 1)) - 1;

  /// Needs no clamp: |x| <= kMax * scale up to rounding errors far below half a step.
  AGOQ_HD static std::int32_t encode(float x, float inverse) {
    return round_half_even(mul(x, inverse));
  }

  /// Needs the clamp: the same rounding errors leave a chance of the step beyond kMax.
  AGOQ_HD static std::int32_t encode_stochastic(float x, float inverse, float uniform) {
    const std::int32_t code = round_stochastic(mul(x, inverse), uniform);
    return code > kMax ? kMax : code < -kMax ? -kMax : code;
  }

  AGOQ_HD static float decode(std::int32_t code, float scale) {
    return canonical(dequantize(code, scale));
  }

  /// The same, but for which NaN: for sums, which become canonical at their end.
  AGOQ_HD static float dequantize(std::int32_t code, float scale) {
    return mul(static_cast<float>(code), scale);
  }

  /// Code `i` of a packed array.
  AGOQ_HD static std::int32_t get(const std::uint8_t* codes, std::int64_t i) {
    constexpr std::int32_t kSign = 1 << (kBits - 1);
    return (get_code<kBits>(codes, i) ^ kSign) - kSign;
  }
  /// In ascending order: see put_code().
  AGOQ_HD static void put(std::uint8_t* codes, std::int64_t i, std::int32_t code) {
    put_code<kBits>(codes, i, code);
  }
};

}  // namespace agoq
