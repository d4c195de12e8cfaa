// bfloat16 and IEEE binary16 to and from fp32, by integer code that is the same everywhere.
//
// Widening is exact. Narrowing rounds half to even, overflows to infinity, and turns every NaN into
// the canonical one.
#pragma once

#include <cstdint>

#include "format/float_bits.h"

namespace agoq {

inline constexpr std::uint16_t kBfloat16Nan = 0x7fc0;
inline constexpr std::uint16_t kFloat16Nan = 0x7e00;

AGOQ_HD constexpr float bfloat16_to_float(std::uint16_t h) {
  return from_bits(static_cast<std::uint32_t>(h) << 16);
}

AGOQ_HD constexpr std::uint16_t float_to_bfloat16(float x) {
  if (is_nan(x)) return kBfloat16Nan;
  const std::uint32_t u = bits(x);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

AGOQ_HD constexpr float float16_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 31u;
  const std::uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31) {
    // A NaN keeps its payload and turns quiet, as the hardware's conversions do.
    return from_bits(sign | (mantissa != 0 ? kCanonicalNanBits : kInfinityBits) | mantissa << 13);
  }
  if (exponent == 0) {
    // mantissa * 2^-24: laid into the mantissa of 2^-14, which is taken off again, exactly.
    const std::uint32_t smallest_normal = 113u << 23;
    const float magnitude =
        from_bits(smallest_normal | mantissa << 13) - from_bits(smallest_normal);
    return from_bits(sign | bits(magnitude));
  }
  return from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

AGOQ_HD constexpr std::uint16_t float_to_float16(float x) {
  const std::uint32_t sign = (bits(x) >> 16) & 0x8000u;
  std::uint32_t a = abs_bits(x);
  if (a > kInfinityBits) return kFloat16Nan;
  if (a >= 143u << 23) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65536 and above
  if (a < 113u << 23) {
    // Subnormal: a count of steps of 2^-24. Up to half a step (2^-25, a tie) rounds to zero.
    if (a <= 102u << 23) return static_cast<std::uint16_t>(sign);
    const std::uint32_t shift = 126u - (a >> 23);
    const std::uint32_t mantissa = (a & 0x7fffffu) | 0x800000u;
    const std::uint32_t steps = mantissa >> shift;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
    const std::uint32_t half = 1u << (shift - 1u);
    const bool up = rest > half || (rest == half && (steps & 1u) != 0);
    return static_cast<std::uint16_t>(sign | (steps + (up ? 1u : 0u)));
  }
  a += 0xfffu + ((a >> 13) & 1u);  // the carry may reach the exponent, and infinity from 65520 up
  return static_cast<std::uint16_t>(sign | (a - (112u << 23)) >> 13);
}

static_assert(float_to_bfloat16(1.00390625f) == 0x3f80 && float_to_bfloat16(1.01171875f) == 0x3f82);
static_assert(float_to_float16(65504.0f) == 0x7bff && float_to_float16(65520.0f) == 0x7c00);
static_assert(float_to_float16(0x1p-24f) == 1 && float_to_float16(-0x1p-25f) == 0x8000);
static_assert(float16_to_float(0x0001) == 0x1p-24f && float16_to_float(0x3c00) == 1.0f);

}  // namespace agoq
