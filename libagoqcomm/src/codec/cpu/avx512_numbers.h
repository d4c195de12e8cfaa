// Elements whose codes are kept as the numbers they stand for, in fp32, until they are packed.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include "codec/cpu/avx512_packed.h"
#include "format/small_float.h"

namespace agoq {
namespace {

/// Symmetric integers.
struct IntegerNumbers {
  using Codes = __m512;

  /// Half to even. Zero of either sign becomes +0.
  AGOQ_INLINE Codes quantize(__m512 x, __m512 inverse) {
    const __m512 unit = _mm512_set1_ps(0x1.8p23f);
    return _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, inverse), unit), unit);
  }
  AGOQ_INLINE __m512 numbers(Codes codes) { return codes; }

  template <int kVectors>
  AGOQ_INLINE __m512i bytes(const Codes (&group)[kVectors]) {
    __m512i integers[kVectors];
    for (int i = 0; i < kVectors; ++i) integers[i] = _mm512_cvtps_epi32(group[i]);
    return to_bytes(integers);
  }
};

/// SmallFloat<kMantissaBits>: see there for how it rounds.
template <int kMantissaBits>
struct FloatNumbers {
  using Codes = __m512;

  AGOQ_INLINE Codes quantize(__m512 x, __m512 inverse) {
    const __m512 y = _mm512_mul_ps(x, inverse);
    // max(|y|, 1), signed as y.
    const __m512 at_least_one = _mm512_range_ps(y, _mm512_set1_ps(1.0f), 0x3);
    const __m512i binade = _mm512_and_si512(_mm512_castps_si512(at_least_one),
                                            _mm512_set1_epi32(static_cast<int>(0xff800000u)));
    const __m512 unit = _mm512_castsi512_ps(_mm512_add_epi32(binade, _mm512_set1_epi32(kLastBit)));
    return _mm512_sub_ps(_mm512_add_ps(y, unit), unit);  // unit - unit is +0 of either sign
  }
  AGOQ_INLINE __m512 numbers(Codes codes) { return codes; }

  template <int kVectors>
  AGOQ_INLINE __m512i bytes(const Codes (&group)[kVectors]) {
    __m512i smallest_steps[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      const __m512 per_one = _mm512_set1_ps(kOnes);
      smallest_steps[i] = _mm512_cvtps_epi32(_mm512_mul_ps(group[i], per_one));
    }
    const __m512i n = to_bytes(smallest_steps);
    // In the first two binades the code counts smallest steps, then doubled ones, then fourfold.
    // The lines meet where the step changes, and the right one is the lowest.
    const __m512i one = _mm512_abs_epi8(n);
    const __m512i zero = _mm512_setzero_si512();
    const __m512i two = _mm512_avg_epu8(one, zero);
    const __m512i four = _mm512_avg_epu8(two, zero);
    const __m512i code =
        _mm512_min_epu8(_mm512_min_epu8(one, _mm512_add_epi8(two, _mm512_set1_epi8(kOnes))),
                        _mm512_add_epi8(four, _mm512_set1_epi8(2 * kOnes)));
    const __m512i negative = _mm512_and_si512(n, _mm512_set1_epi8(-128));
    return _mm512_or_si512(code, _mm512_srli_epi16(negative, 5 - kMantissaBits));
  }

 private:
  static constexpr int kOnes = 1 << kMantissaBits;             // steps in 1
  static constexpr int kLastBit = (23 - kMantissaBits) << 23;  // to the exponent of 2^23 steps
};

}  // namespace
}  // namespace agoq
