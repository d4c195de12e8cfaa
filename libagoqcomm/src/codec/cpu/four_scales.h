// The scales of four blocks at once, since two divisions in a row are the longest wait of an
// encoder. Lane by lane what make_scale() in format/scale.h computes.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "agoqcomm/block_format.h"
#include "agoqcomm/types.h"
#include "codec/encoded_blocks.h"
#include "format/scale.h"

namespace agoq {

struct FourScales {
  alignas(16) float scale[4];
  alignas(16) float inverse[4];
  int zero_codes;  ///< Bit g: the codes of block g are all 0, whatever its elements are.
};

/// Each row holds lanes of which the largest is its block's absmax.
static inline __attribute__((always_inline)) __m128i largest_of_rows(const __m128i (&rows)[4]) {
  const __m128i a =
      _mm_max_epu32(_mm_unpacklo_epi32(rows[0], rows[1]), _mm_unpackhi_epi32(rows[0], rows[1]));
  const __m128i b =
      _mm_max_epu32(_mm_unpacklo_epi32(rows[2], rows[3]), _mm_unpackhi_epi32(rows[2], rows[3]));
  return _mm_max_epu32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));
}

static inline __attribute__((always_inline)) FourScales make_four_scales(__m128i absmax,
                                                                         float code_max,
                                                                         ScaleType type) {
  const __m128i infinite =
      _mm_cmpgt_epi32(absmax, _mm_set1_epi32(static_cast<int>(kInfinityBits - 1)));
  // What has no ordinary scale is divided as 0 and by 1: no division raises what the scalar
  // reference does not.
  const __m128 finite = _mm_castsi128_ps(_mm_andnot_si128(infinite, absmax));
  __m128i scale = _mm_castps_si128(_mm_div_ps(finite, _mm_set1_ps(code_max)));
  if (type == ScaleType::kBfloat16) {
    scale = _mm_and_si128(_mm_add_epi32(scale, _mm_set1_epi32(0xffff)),
                          _mm_set1_epi32(static_cast<int>(0xffff0000u)));
  }
  const __m128i none =
      _mm_cmpgt_epi32(_mm_set1_epi32(static_cast<int>(bits(kSmallestScale))), scale);
  const __m128 one = _mm_set1_ps(1.0f);
  const __m128 divisor = _mm_blendv_ps(_mm_castsi128_ps(scale), one, _mm_castsi128_ps(none));
  const __m128 inverse = _mm_andnot_ps(_mm_castsi128_ps(none), _mm_div_ps(one, divisor));
  scale = _mm_blendv_epi8(_mm_andnot_si128(none, scale),
                          _mm_set1_epi32(static_cast<int>(kCanonicalNanBits)), infinite);
  FourScales scales;
  _mm_store_ps(scales.scale, _mm_castsi128_ps(scale));
  _mm_store_ps(scales.inverse, inverse);
  scales.zero_codes = _mm_movemask_ps(_mm_castsi128_ps(none));
  return scales;
}

/// The scales of blocks b, b + 1, ..., of which `largest` holds the magnitudes.
template <class Isa, DataType kType, int kCount>
static inline __attribute__((always_inline)) FourScales
scale_blocks(const typename Isa::Magnitude (&largest)[kCount], float code_max, std::int64_t b,
             MutableEncodedBlocks out) {
  __m128i rows[4];
  for (int g = 0; g < 4; ++g) rows[g] = Isa::template fold<kType>(largest[g % kCount]);
  const FourScales scales = make_four_scales(largest_of_rows(rows), code_max, out.scale_type);
  for (int g = 0; g < kCount; ++g) {
    store_scale(out.scales, b + g, out.scale_type, scales.scale[g]);
  }
  return scales;
}

/// Whether a product of a code and the scale is exact and far from the ends of fp32's range. Then
/// one fused operation adds it to the same bits as multiplying, then adding. Elsewhere it must
/// not be used: a product past the range must become infinite as the decoded piece would.
static inline __attribute__((always_inline)) bool is_exact(float scale, ScaleType type) {
  constexpr std::uint32_t kFirst = bits(kSmallestScale);
  constexpr std::uint32_t kEnd = bits(0x1p100f);
  return type == ScaleType::kBfloat16 && bits(scale) - kFirst < kEnd - kFirst;
}

}  // namespace agoq
