// bf16 and fp16 against the compiler's own conversions, over all halves and a sweep of all floats.
#include "format/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace agoq {
namespace {

/// Nearest bf16, ties to even, by comparing distances in double: no shared idea with half.h.
std::uint16_t bfloat16_oracle(float x) {
  if (std::isnan(x)) return 0x7fc0;
  std::uint32_t u;
  std::memcpy(&u, &x, 4);
  const auto lower = static_cast<std::uint16_t>(u >> 16);  // toward zero
  if (std::isinf(x)) return lower;
  const auto value = [](std::uint32_t h) {
    // The step above the largest finite bf16 stands for 2^128, where rounding to infinity starts.
    if ((h & 0x7fff) == 0x7f80) return (h & 0x8000) != 0 ? -0x1p128 : 0x1p128;
    const std::uint32_t wide = h << 16;
    float f;
    std::memcpy(&f, &wide, 4);
    return static_cast<double>(f);
  };
  const std::uint32_t upper = lower + 1u;
  const double below = std::abs(static_cast<double>(x) - value(lower));
  const double above = std::abs(value(upper) - static_cast<double>(x));
  if (below < above || (below == above && lower % 2 == 0)) return lower;
  return static_cast<std::uint16_t>(upper);
}

std::uint16_t float16_oracle(float x) {
  if (std::isnan(x)) return 0x7e00;
  const auto h = static_cast<_Float16>(x);
  std::uint16_t u;
  std::memcpy(&u, &h, 2);
  return u;
}

float float16_value_oracle(std::uint16_t u) {
  _Float16 h;
  std::memcpy(&h, &u, 2);
  return static_cast<float>(h);
}

TEST(Half, WideningIsExactAndRoundTripsForAllValues) {
  for (std::uint32_t u = 0; u < 1u << 16; ++u) {
    const auto h = static_cast<std::uint16_t>(u);
    EXPECT_EQ(bits(bfloat16_to_float(h)), u << 16);
    const bool bfloat16_nan = (u & 0x7fff) > 0x7f80;
    EXPECT_EQ(float_to_bfloat16(bfloat16_to_float(h)), bfloat16_nan ? kBfloat16Nan : h);
    EXPECT_EQ(bits(float16_to_float(h)), bits(float16_value_oracle(h))) << std::hex << u;
    const bool float16_nan = (u & 0x7fff) > 0x7c00;
    EXPECT_EQ(float_to_float16(float16_to_float(h)), float16_nan ? kFloat16Nan : h);
  }
}

/// Compares the narrowing of one float, and counts instead of reporting: there are millions.
int mismatches(std::uint32_t u) {
  const float x = from_bits(u);
  return (float_to_bfloat16(x) != bfloat16_oracle(x)) + (float_to_float16(x) != float16_oracle(x));
}

TEST(Half, NarrowingRoundsHalfToEvenOverASweepOfAllFloats) {
  std::int64_t wrong = 0;
  for (std::uint64_t u = 0; u < std::uint64_t{1} << 32; u += 1031) {
    wrong += mismatches(static_cast<std::uint32_t>(u));
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Half, NarrowingIsRightAroundEveryTie) {
  std::int64_t wrong = 0;
  for (std::uint32_t h = 0; h < 1u << 16; ++h) {
    const std::uint32_t bfloat16_tie = h << 16 | 0x8000u;
    // Halfway from one fp16 to the next, by way of their fp32 values.
    const auto next = static_cast<std::uint16_t>((h & 0x7fff) < 0x7bff ? h + 1 : h);
    const float float16_tie =
        0.5f * (float16_value_oracle(static_cast<std::uint16_t>(h)) + float16_value_oracle(next));
    for (const std::uint32_t tie : {bfloat16_tie, bits(float16_tie), bits(65520.0f)}) {
      for (const std::uint32_t u : {tie - 1, tie, tie + 1}) wrong += mismatches(u);
    }
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace agoq
