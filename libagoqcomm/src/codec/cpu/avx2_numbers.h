// Elements whose codes are kept as the numbers they stand for, in fp32, until they are packed.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include "codec/cpu/avx2_packed.h"
#include "format/small_float.h"

namespace agoq {
namespace {

/// Symmetric integers.
struct IntegerNumbers {
  using Codes = __m256;

  /// Half to even. Zero of either sign becomes +0.
  AGOQ_INLINE Codes quantize(__m256 x, __m256 inverse) {
    const __m256 unit = _mm256_set1_ps(0x1.8p23f);
    return _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, inverse), unit), unit);
  }
  AGOQ_INLINE __m256 numbers(Codes codes) { return codes; }

  AGOQ_INLINE __m256i bytes(const Codes (&group)[4]) {
    __m256i integers[4];
    for (int i = 0; i < 4; ++i) integers[i] = _mm256_cvtps_epi32(group[i]);
    return to_bytes(integers);
  }
};

/// SmallFloat<kMantissaBits>: see there for how it rounds.
template <int kMantissaBits>
struct FloatNumbers {
  using Codes = __m256;

  AGOQ_INLINE Codes quantize(__m256 x, __m256 inverse) {
    const __m256 y = _mm256_mul_ps(x, inverse);
    const __m256i exponent = _mm256_and_si256(_mm256_castps_si256(y),
                                              _mm256_set1_epi32(static_cast<int>(kInfinityBits)));
    const __m256i binade = _mm256_max_epi32(exponent, _mm256_castps_si256(_mm256_set1_ps(1.0f)));
    const __m256i magnitude = _mm256_add_epi32(binade, _mm256_set1_epi32(kLastBit));
    const __m256 sign = _mm256_and_ps(y, _mm256_set1_ps(-0.0f));
    const __m256 unit = _mm256_or_ps(_mm256_castsi256_ps(magnitude), sign);
    return _mm256_sub_ps(_mm256_add_ps(y, unit), unit);  // unit - unit is +0 of either sign
  }
  AGOQ_INLINE __m256 numbers(Codes codes) { return codes; }

  AGOQ_INLINE __m256i bytes(const Codes (&group)[4]) {
    __m256i smallest_steps[4];
    for (int i = 0; i < 4; ++i) {
      const __m256 per_one = _mm256_set1_ps(kOnes);
      smallest_steps[i] = _mm256_cvtps_epi32(_mm256_mul_ps(group[i], per_one));
    }
    const __m256i n = to_bytes(smallest_steps);
    // In the first two binades the code counts smallest steps, then doubled ones, then fourfold.
    // The lines meet where the step changes, and the right one is the lowest.
    const __m256i one = _mm256_abs_epi8(n);
    const __m256i zero = _mm256_setzero_si256();
    const __m256i two = _mm256_avg_epu8(one, zero);
    const __m256i four = _mm256_avg_epu8(two, zero);
    const __m256i code =
        _mm256_min_epu8(_mm256_min_epu8(one, _mm256_add_epi8(two, _mm256_set1_epi8(kOnes))),
                        _mm256_add_epi8(four, _mm256_set1_epi8(2 * kOnes)));
    const __m256i negative = _mm256_and_si256(n, _mm256_set1_epi8(-128));
    return _mm256_or_si256(code, _mm256_srli_epi16(negative, 5 - kMantissaBits));
  }

 private:
  static constexpr int kOnes = 1 << kMantissaBits;             // steps in 1
  static constexpr int kLastBit = (23 - kMantissaBits) << 23;  // to the exponent of 2^23 steps
};

}  // namespace
}  // namespace agoq
