// AVX-512 (F, BW, VL, DQ): 16 lanes.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "codec/cpu/block_kernels.h"
#include "codec/cpu/fold_magnitudes.h"
#include "codec/cpu/make_tables.h"

namespace agoq {
namespace {  // NOLINT(google-build-namespaces): no linker may take it for another ISA's

struct Avx512 {
  using Vector = __m512;
  using Magnitude = __m512i;
  static constexpr int kLanes = 16;
  static constexpr int kBytes = 64;

  AGOQ_INLINE Vector broadcast(float x) { return _mm512_set1_ps(x); }
  AGOQ_INLINE Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
  AGOQ_INLINE Vector mul(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  /// a * b + c in one rounding.
  AGOQ_INLINE Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  AGOQ_INLINE bool has_nan(Vector a, Vector b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0;
  }
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
  template <DataType kType>
  AGOQ_INLINE Magnitude max_of(Magnitude a, Magnitude b) {
    return kType == DataType::kFloat32 ? _mm512_max_epu32(a, b) : _mm512_max_epu16(a, b);
  }
  /// As bits of the caller's type, in which magnitudes are ordered as in fp32.
  template <DataType kType>
  AGOQ_INLINE Magnitude max_raw(Magnitude largest, const void* from) {
    const int no_sign = kType == DataType::kFloat32 ? 0x7fffffff : 0x7fff7fff;
    const __m512i x = _mm512_loadu_si512(from);
    return max_of<kType>(largest, _mm512_and_si512(x, _mm512_set1_epi32(no_sign)));
  }
  template <DataType kType>
  AGOQ_INLINE __m128i fold(Magnitude largest) {
    const __m256i low = _mm512_castsi512_si256(largest);
    const __m256i high = _mm512_extracti64x4_epi64(largest, 1);
    return fold_magnitudes<kType>(low, high);
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
      _mm256_storeu_si256(static_cast<__m256i*>(to), bfloat16(x));
    }
  }
  /// Past the caches; `to` is aligned as the register that is stored.
  template <DataType kType>
  AGOQ_INLINE void stream(void* to, Vector x) {
    if constexpr (kType == DataType::kFloat32) {
      _mm512_stream_ps(static_cast<float*>(to), x);
    } else if constexpr (kType == DataType::kFloat16) {
      _mm256_stream_si256(static_cast<__m256i*>(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    } else {
      _mm256_stream_si256(static_cast<__m256i*>(to), bfloat16(x));
    }
  }
  /// Both, one behind the other.
  template <DataType kType, bool kStreamed>
  AGOQ_INLINE void store_two(void* to, Vector first, Vector second) {
    if constexpr (kType == DataType::kBfloat16) {
      // Packing works within 128-bit lanes.
      const __m512i mixed = _mm512_packus_epi32(upper_halves(first), upper_halves(second));
      const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
      const __m512i both = _mm512_permutexvar_epi64(order, mixed);
      if constexpr (kStreamed) {
        _mm256_stream_si256(static_cast<__m256i*>(to), _mm512_castsi512_si256(both));
        _mm256_stream_si256(static_cast<__m256i*>(to) + 1, _mm512_extracti64x4_epi64(both, 1));
      } else {
        _mm512_storeu_si512(to, both);
      }
    } else {
      void* const behind = static_cast<char*>(to) + (kType == DataType::kFloat32 ? 64 : 32);
      kStreamed ? stream<kType>(to, first) : store<kType>(to, first);
      kStreamed ? stream<kType>(behind, second) : store<kType>(behind, second);
    }
  }
  AGOQ_INLINE __m256i bfloat16(Vector x) { return _mm512_cvtepi32_epi16(upper_halves(x)); }
  /// Rounded to bfloat16, in the low bits.
  AGOQ_INLINE __m512i upper_halves(Vector x) {
    const __m512i u = _mm512_castps_si512(x);
    const __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
    const __m512i half = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
    return _mm512_srli_epi32(rounded, 16);
  }
};

/// An element format's vector operations.
template <class Format>
struct Element;

template <class Format, int kBlock>
using Kernels = BlockKernels<Avx512, Element<Format>, kBlock>;

}  // namespace
}  // namespace agoq
