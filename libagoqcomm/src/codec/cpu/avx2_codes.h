// Elements on their way from numbers to packed codes, as integers until they are bytes.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include "codec/cpu/avx2_packed.h"
#include "format/float_bits.h"

namespace agoq {
namespace {  // NOLINT(google-build-namespaces): no linker may take it for another ISA's

/// Symmetric integers: the codes themselves.
struct IntegerCodes {
  using Codes = __m256i;  // 32 bits each

  AGOQ_INLINE Codes quantize(__m256 x, __m256 inverse) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
  }
  AGOQ_INLINE __m256 numbers(Codes codes) { return _mm256_cvtepi32_ps(codes); }

  AGOQ_INLINE __m256i bytes(const Codes (&group)[4]) { return to_bytes(group); }
};

/// SmallFloat<kMantissaBits>: the numbers, counted in steps of the lowest binade.
template <int kMantissaBits>
struct FloatCodes {
  using Codes = __m256;

  /// As SmallFloat::encode(), but that the unit is one and a half times as large, which serves both
  /// signs and makes +0 of what rounds to zero.
  AGOQ_INLINE Codes quantize(__m256 x, __m256 inverse) {
    const __m256 y = _mm256_mul_ps(x, _mm256_mul_ps(inverse, _mm256_set1_ps(kOne)));
    const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(y), _mm256_set1_epi32(kInfinity));
    const __m256i binade = _mm256_max_epi32(exponent, _mm256_castps_si256(_mm256_set1_ps(kOne)));
    const __m256 unit = _mm256_castsi256_ps(_mm256_add_epi32(binade, _mm256_set1_epi32(kToUnit)));
    return _mm256_sub_ps(_mm256_add_ps(y, unit), unit);
  }
  AGOQ_INLINE __m256 numbers(Codes codes) {
    return _mm256_mul_ps(codes, _mm256_set1_ps(1.0f / kOne));
  }

  AGOQ_INLINE __m256i bytes(const Codes (&group)[4]) {
    __m256i steps[4];
    for (int i = 0; i < 4; ++i) steps[i] = _mm256_cvtps_epi32(group[i]);
    const __m256i n = to_bytes(steps);
    const __m256i negative = _mm256_and_si256(n, _mm256_set1_epi8(-128));
    return _mm256_or_si256(magnitude_codes(_mm256_abs_epi8(n)),
                           _mm256_srli_epi16(negative, 5 - kMantissaBits));
  }

 private:
  static constexpr int kOne = 1 << kMantissaBits;
  static constexpr int kInfinity = static_cast<int>(kInfinityBits);
  /// To the exponent of 2^23 steps, and half as much again.
  static constexpr int kToUnit = ((23 - kMantissaBits) << 23) + (1 << 22);

  AGOQ_INLINE __m256i magnitude_codes(__m256i steps) {
    if constexpr (kMantissaBits == 1) {
      const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7, 0, 0, 0);
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(codes), steps);
    }
    // In the first two binades the code counts smallest steps, then doubled ones, then fourfold.
    // The lines meet where the step changes, and the right one is the lowest.
    const __m256i zero = _mm256_setzero_si256();
    const __m256i two = _mm256_avg_epu8(steps, zero);
    const __m256i four = _mm256_avg_epu8(two, zero);
    return _mm256_min_epu8(_mm256_min_epu8(steps, _mm256_add_epi8(two, _mm256_set1_epi8(kOne))),
                           _mm256_add_epi8(four, _mm256_set1_epi8(2 * kOne)));
  }
};

}  // namespace
}  // namespace agoq
