// AVX-512 (F, BW, VL, DQ): 16 lanes.
#include <immintrin.h>

#include <cstdint>

#include "codec/cpu/block_kernels.h"
#include "codec/cpu/make_tables.h"
#include "format/formats.h"

namespace agoq {
namespace {

struct Avx512 {
  using Vector = __m512;
  using Magnitude = __m512i;
  static constexpr int kLanes = 16;

  AGOQ_INLINE Vector broadcast(float x) { return _mm512_set1_ps(x); }
  AGOQ_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  AGOQ_INLINE Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  AGOQ_INLINE Vector canonical(Vector x) {
    const __mmask16 nan_lanes = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(x, nan_lanes, broadcast(from_bits(kCanonicalNanBits)));
  }

  AGOQ_INLINE Magnitude zero_magnitude() { return _mm512_setzero_si512(); }
  AGOQ_INLINE Magnitude max_magnitude(Magnitude largest, Vector x) {
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epu32(largest, magnitude);
  }
  template <int kWays>
  AGOQ_INLINE std::uint32_t largest(const Magnitude (&ways)[kWays]) {
    Magnitude all = ways[0];
    AGOQ_UNROLL
    for (int i = 1; i < kWays; ++i) all = _mm512_max_epu32(all, ways[i]);
    return _mm512_reduce_max_epu32(all);
  }

  template <DataType kType>
  AGOQ_INLINE Vector load(const void* from) {
    if constexpr (kType == DataType::kFloat32) return _mm512_loadu_ps(from);
    const __m256i half = _mm256_loadu_si256(static_cast<const __m256i*>(from));
    if constexpr (kType == DataType::kFloat16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }

  /// Rounds half to even. A NaN must be the canonical one, which these roundings keep canonical.
  template <DataType kType>
  AGOQ_INLINE void store(void* to, Vector x) {
    if constexpr (kType == DataType::kFloat32) {
      _mm512_storeu_ps(to, x);
    } else if constexpr (kType == DataType::kFloat16) {
      _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    } else {
      const __m512i u = _mm512_castps_si512(x);
      const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
      const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
      const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, half), 16);
      _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi32_epi16(rounded));
    }
  }
};

/// An element format's vector operations.
template <class Format>
struct Element;

template <>
struct Element<Int8> {
  using Codes = __m512i;  // 32 bits each
  static constexpr int kBits = Int8::kBits;
  static constexpr int kMax = Int8::kMax;

  AGOQ_INLINE Codes quantize(__m512 x, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
  }
  AGOQ_INLINE __m512 dequantize(Codes codes, __m512 scale) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(codes), scale);
  }
  AGOQ_INLINE Codes load(const std::uint8_t* codes) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  }

  AGOQ_INLINE void store(const Codes (&group)[4], std::uint8_t* codes) {
    const __m512i low = _mm512_packs_epi32(group[0], group[1]);
    const __m512i high = _mm512_packs_epi32(group[2], group[3]);
    // Packing works within 128-bit lanes, and leaves the quarters of each register apart.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i packed = _mm512_packs_epi16(low, high);
    _mm512_storeu_si512(codes, _mm512_permutexvar_epi32(order, packed));
  }
  AGOQ_INLINE void store(const Codes (&group)[2], std::uint8_t* codes) {
    for (int i = 0; i < 2; ++i) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * i), _mm512_cvtepi32_epi8(group[i]));
    }
  }
};

template <class Format, int kBlock>
using Kernels = BlockKernels<Avx512, Element<Format>, kBlock>;

}  // namespace

const KernelTable* avx512_kernels(ElementFormat format, int block) {
  return table_for<Kernels>(format, block);
}

}  // namespace agoq
