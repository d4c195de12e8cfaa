// From the largest magnitudes in the lanes of a register, as bits of the elements' own type, to
// four lanes of fp32 bits that still hold the largest.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include "agoqcomm/types.h"

namespace agoq {

template <DataType kType>
static inline __attribute__((always_inline)) __m128i fold_magnitudes(__m256i all) {
  const __m128i low = _mm256_castsi256_si128(all);
  const __m128i high = _mm256_extracti128_si256(all, 1);
  if constexpr (kType == DataType::kFloat32) return _mm_max_epu32(low, high);
  const __m128i eight = _mm_max_epu16(low, high);
  const __m128i four = _mm_max_epu16(eight, _mm_unpackhi_epi64(eight, eight));
  // Widening to fp32 keeps the order, and every NaN above infinity.
  if constexpr (kType == DataType::kFloat16) return _mm_castps_si128(_mm_cvtph_ps(four));
  return _mm_slli_epi32(_mm_cvtepu16_epi32(four), 16);
}

template <DataType kType>
static inline __attribute__((always_inline)) __m128i fold_magnitudes(__m256i a, __m256i b) {
  return fold_magnitudes<kType>(kType == DataType::kFloat32 ? _mm256_max_epu32(a, b)
                                                            : _mm256_max_epu16(a, b));
}

}  // namespace agoq
