// Floating-point codes: a sign, two bits of exponent with bias 1, and a mantissa.
//
// Below 2 the codes are equally far apart, from there on each binade doubles the step. There is no
// infinity and no NaN. Both zeros exist, but encoders write +0 only, for negative numbers too.
#pragma once

#include <cstdint>

#include "format/float_bits.h"
#include "format/packed_codes.h"
#include "format/rounding.h"

namespace agoq {

template <int kMantissaBits>
struct SmallFloat {
  static constexpr int kBits = 3 + kMantissaBits;
  static constexpr float kMax = 8.0f - 4.0f / (1 << kMantissaBits);

  /// Ties go to the even code. Saturates without a clamp: |x| <= kMax * scale up to rounding errors
  /// far below half a step.
  AGOQ_HD static std::int32_t encode(float x, float inverse) {
    const float y = mul(x, inverse);
    const std::uint32_t binade = binade_of(y);
    // Whose last bit is the step: adding it leaves no bits below, and counts steps in the lowest.
    const float unit = from_bits(binade + (23u - kMantissaBits) * kExponentUnit);
    const std::uint32_t steps = bits(add(from_bits(abs_bits(y)), unit)) - bits(unit);
    return with_sign(code_of(binade, steps), y);
  }

  /// The magnitude goes up when `uniform`, in [0, 1), is less than the distance to the code below,
  /// in steps. Needs the clamp that encode() does not.
  AGOQ_HD static std::int32_t encode_stochastic(float x, float inverse, float uniform) {
    const float y = mul(x, inverse);
    const std::uint32_t binade = binade_of(y);
    const float steps_of_one =
        from_bits((254u + kMantissaBits) * kExponentUnit - binade);  // exact, a power of two
    const std::int32_t steps = round_stochastic(mul(from_bits(abs_bits(y)), steps_of_one), uniform);
    const std::int32_t code = code_of(binade, static_cast<std::uint32_t>(steps));
    return with_sign(code > kMaxCode ? kMaxCode : code, y);
  }

  /// What a code stands for, before the scale.
  AGOQ_HD static constexpr float number(std::int32_t code) {
    const auto u = static_cast<std::uint32_t>(code);
    const std::uint32_t exponent = u >> kMantissaBits & 3u;
    const std::uint32_t mantissa = (u & ((1u << kMantissaBits) - 1u)) << (23 - kMantissaBits);
    // Of exponent 0 the mantissa is laid behind a one, which is taken off again, exactly.
    const float magnitude = exponent != 0 ? from_bits((exponent + 126u) * kExponentUnit | mantissa)
                                          : from_bits(kOneBits | mantissa) - 1.0f;
    return from_bits(bits(magnitude) | u >> (kBits - 1) << 31);
  }

  AGOQ_HD static float decode(std::int32_t code, float scale) {
    return canonical(dequantize(code, scale));
  }

  /// The same, but for which NaN: for sums, which become canonical at their end.
  AGOQ_HD static float dequantize(std::int32_t code, float scale) {
    return mul(number(code), scale);
  }

  /// Code `i` of a packed array: its bits, from 0 to 2^kBits - 1.
  AGOQ_HD static std::int32_t get(const std::uint8_t* codes, std::int64_t i) {
    return get_code<kBits>(codes, i);
  }
  /// In ascending order: see put_code().
  AGOQ_HD static void put(std::uint8_t* codes, std::int64_t i, std::int32_t code) {
    put_code<kBits>(codes, i, code);
  }

 private:
  static constexpr std::uint32_t kExponentUnit = 1u << 23;
  static constexpr std::uint32_t kOneBits = 0x3f800000u;
  static constexpr std::int32_t kMaxCode = (1 << (kBits - 1)) - 1;

  /// Bits of the power of two at or below |y|, but of 1 at least.
  AGOQ_HD static std::uint32_t binade_of(float y) {
    const std::uint32_t exponent = bits(y) & kInfinityBits;
    return exponent > kOneBits ? exponent : kOneBits;
  }

  /// The magnitude's code, from its binade and the count of the binade's steps in it.
  AGOQ_HD static std::int32_t code_of(std::uint32_t binade, std::uint32_t steps) {
    return static_cast<std::int32_t>(((binade - kOneBits) >> (23 - kMantissaBits)) + steps);
  }

  AGOQ_HD static std::int32_t with_sign(std::int32_t code, float y) {
    const std::int32_t sign = static_cast<std::int32_t>(bits(y) >> 31) << (kBits - 1);
    return code == 0 ? 0 : code | sign;
  }
};

}  // namespace agoq
