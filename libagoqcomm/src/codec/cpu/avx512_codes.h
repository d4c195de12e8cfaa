// Elements on their way from numbers to packed codes, as integers until they are bytes.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include "codec/cpu/avx512_packed.h"
#include "format/float_bits.h"

namespace agoq {
namespace {  // NOLINT(google-build-namespaces): no linker may take it for another ISA's

/// Symmetric integers: the codes themselves.
struct IntegerCodes {
  using Codes = __m512i;  // 32 bits each

  AGOQ_INLINE Codes quantize(__m512 x, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
  }
  AGOQ_INLINE __m512 numbers(Codes codes) { return _mm512_cvtepi32_ps(codes); }

  template <int kVectors>
  AGOQ_INLINE __m512i bytes(const Codes (&group)[kVectors]) {
    return to_bytes(group);
  }
};

/// SmallFloat<kMantissaBits>: the numbers, counted in steps of the lowest binade.
template <int kMantissaBits>
struct FloatCodes {
  using Codes = __m512;

  /// As SmallFloat::encode(), but that the unit is one and a half times as large, which serves both
  /// signs and makes +0 of what rounds to zero.
  AGOQ_INLINE Codes quantize(__m512 x, __m512 inverse) {
    const __m512 y = _mm512_mul_ps(x, _mm512_mul_ps(inverse, _mm512_set1_ps(kOne)));
    const __m512i exponent = _mm512_and_si512(_mm512_castps_si512(y), _mm512_set1_epi32(kInfinity));
    const __m512i binade = _mm512_max_epi32(exponent, _mm512_castps_si512(_mm512_set1_ps(kOne)));
    const __m512 unit = _mm512_castsi512_ps(_mm512_add_epi32(binade, _mm512_set1_epi32(kToUnit)));
    return _mm512_sub_ps(_mm512_add_ps(y, unit), unit);
  }
  AGOQ_INLINE __m512 numbers(Codes codes) {
    return _mm512_mul_ps(codes, _mm512_set1_ps(1.0f / kOne));
  }

  template <int kVectors>
  AGOQ_INLINE __m512i bytes(const Codes (&group)[kVectors]) {
    __m512i steps[kVectors];
    for (int i = 0; i < kVectors; ++i) steps[i] = _mm512_cvtps_epi32(group[i]);
    const __m512i n = to_bytes(steps);
    const __m512i negative = _mm512_and_si512(n, _mm512_set1_epi8(-128));
    return _mm512_or_si512(magnitude_codes(_mm512_abs_epi8(n)),
                           _mm512_srli_epi16(negative, 5 - kMantissaBits));
  }

 private:
  static constexpr int kOne = 1 << kMantissaBits;
  static constexpr int kInfinity = static_cast<int>(kInfinityBits);
  /// To the exponent of 2^23 steps, and half as much again.
  static constexpr int kToUnit = ((23 - kMantissaBits) << 23) + (1 << 22);

  AGOQ_INLINE __m512i magnitude_codes(__m512i steps) {
    if constexpr (kMantissaBits == 1) {
      const __m128i codes = _mm_setr_epi8(0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7, 0, 0, 0);
      return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), steps);
    }
    // In the first two binades the code counts smallest steps, then doubled ones, then fourfold.
    // The lines meet where the step changes, and the right one is the lowest.
    const __m512i zero = _mm512_setzero_si512();
    const __m512i two = _mm512_avg_epu8(steps, zero);
    const __m512i four = _mm512_avg_epu8(two, zero);
    return _mm512_min_epu8(_mm512_min_epu8(steps, _mm512_add_epi8(two, _mm512_set1_epi8(kOne))),
                           _mm512_add_epi8(four, _mm512_set1_epi8(2 * kOne)));
  }
};

}  // namespace
}  // namespace agoq
