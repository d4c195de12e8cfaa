// AVX-512 (F, BW, VL, DQ): 16 lanes.
#include <immintrin.h>

#include <cstdint>

#include "codec/cpu/block_kernels.h"
#include "codec/cpu/make_tables.h"
#include "format/formats.h"
#include "format/half.h"

namespace agoq {
namespace {

struct Avx512 {
  using Vector = __m512;
  using Magnitude = __m512i;
  static constexpr int kLanes = 16;

  AGOQ_INLINE Vector broadcast(float x) { return _mm512_set1_ps(x); }
  AGOQ_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  AGOQ_INLINE Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  AGOQ_INLINE __mmask16 nan_lanes(Vector x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
  AGOQ_INLINE Vector canonical(Vector x) {
    return _mm512_mask_mov_ps(x, nan_lanes(x), broadcast(from_bits(kCanonicalNanBits)));
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

  template <DataType kType>
  AGOQ_INLINE void store(void* to, Vector x) {
    if constexpr (kType == DataType::kFloat32) {
      _mm512_storeu_ps(to, x);
      return;
    }
    __m256i half;
    if constexpr (kType == DataType::kFloat16) {
      half = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
      half = _mm256_mask_mov_epi16(half, nan_lanes(x), _mm256_set1_epi16(kFloat16Nan));
    } else {
      const __m512i u = _mm512_castps_si512(x);
      const __m512i upper = _mm512_srli_epi32(u, 16);
      const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
      const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
      half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
      half = _mm256_mask_mov_epi16(half, nan_lanes(x), _mm256_set1_epi16(kBfloat16Nan));
    }
    _mm256_storeu_si256(static_cast<__m256i*>(to), half);
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

  template <int kVectors>
  AGOQ_INLINE void store_block(const __m512 (&x)[kVectors], __m512 inverse, std::uint8_t* codes) {
    if constexpr (kVectors % 4 == 0) {
      // Packing works within 128-bit lanes, and leaves the quarters of each vector apart.
      const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      AGOQ_UNROLL
      for (int i = 0; i < kVectors; i += 4) {
        const __m512i low =
            _mm512_packs_epi32(quantize(x[i], inverse), quantize(x[i + 1], inverse));
        const __m512i high =
            _mm512_packs_epi32(quantize(x[i + 2], inverse), quantize(x[i + 3], inverse));
        const __m512i packed = _mm512_packs_epi16(low, high);
        _mm512_storeu_si512(codes + 16 * i, _mm512_permutexvar_epi32(order, packed));
      }
    } else {
      AGOQ_UNROLL
      for (int i = 0; i < kVectors; ++i) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * i),
                         _mm512_cvtepi32_epi8(quantize(x[i], inverse)));
      }
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
