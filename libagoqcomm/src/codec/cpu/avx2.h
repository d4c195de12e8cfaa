// AVX2 with F16C and FMA: 8 lanes.
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

struct Avx2 {
  using Vector = __m256;
  using Magnitude = __m256i;
  static constexpr int kLanes = 8;
  static constexpr int kBytes = 32;

  AGOQ_INLINE Vector broadcast(float x) { return _mm256_set1_ps(x); }
  AGOQ_INLINE Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  AGOQ_INLINE Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  /// a * b + c in one rounding.
  AGOQ_INLINE Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  AGOQ_INLINE bool has_nan(Vector a, Vector b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
  }
  AGOQ_INLINE Vector canonical(Vector x) {
    const Vector nan_lanes = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_ps(x, broadcast(from_bits(kCanonicalNanBits)), nan_lanes);
  }

  AGOQ_INLINE Magnitude zero_magnitude() { return _mm256_setzero_si256(); }
  AGOQ_INLINE Magnitude max_magnitude(Magnitude largest, Vector x) {
    const __m256i magnitude =
        _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
    return _mm256_max_epu32(largest, magnitude);
  }
  template <DataType kType>
  AGOQ_INLINE Magnitude max_of(Magnitude a, Magnitude b) {
    return kType == DataType::kFloat32 ? _mm256_max_epu32(a, b) : _mm256_max_epu16(a, b);
  }
  /// As bits of the caller's type, in which magnitudes are ordered as in fp32.
  template <DataType kType>
  AGOQ_INLINE Magnitude max_raw(Magnitude largest, const void* from) {
    const int no_sign = kType == DataType::kFloat32 ? 0x7fffffff : 0x7fff7fff;
    const __m256i x = _mm256_loadu_si256(static_cast<const __m256i*>(from));
    return max_of<kType>(largest, _mm256_and_si256(x, _mm256_set1_epi32(no_sign)));
  }
  template <DataType kType>
  AGOQ_INLINE __m128i fold(Magnitude largest) {
    return fold_magnitudes<kType>(largest);
  }

  template <DataType kType>
  AGOQ_INLINE Vector load(const void* from) {
    if constexpr (kType == DataType::kFloat32) {
      return _mm256_loadu_ps(static_cast<const float*>(from));
    }
    const __m128i half = _mm_loadu_si128(static_cast<const __m128i*>(from));
    if constexpr (kType == DataType::kFloat16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }

  /// Rounds half to even. A NaN must be the canonical one, which these roundings keep canonical.
  template <DataType kType>
  AGOQ_INLINE void store(void* to, Vector x) {
    if constexpr (kType == DataType::kFloat32) {
      _mm256_storeu_ps(static_cast<float*>(to), x);
    } else if constexpr (kType == DataType::kFloat16) {
      _mm_storeu_si128(static_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    } else {
      _mm_storeu_si128(static_cast<__m128i*>(to), bfloat16(x));
    }
  }
  /// Past the caches; `to` is aligned as the register that is stored.
  template <DataType kType>
  AGOQ_INLINE void stream(void* to, Vector x) {
    if constexpr (kType == DataType::kFloat32) {
      _mm256_stream_ps(static_cast<float*>(to), x);
    } else if constexpr (kType == DataType::kFloat16) {
      _mm_stream_si128(static_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    } else {
      _mm_stream_si128(static_cast<__m128i*>(to), bfloat16(x));
    }
  }
  /// Both, one behind the other.
  template <DataType kType, bool kStreamed>
  AGOQ_INLINE void store_two(void* to, Vector first, Vector second) {
    if constexpr (kType == DataType::kBfloat16) {
      // Packing works within 128-bit lanes.
      const __m256i mixed = _mm256_packus_epi32(upper_halves(first), upper_halves(second));
      const __m256i both = _mm256_permute4x64_epi64(mixed, 0xd8);
      if constexpr (kStreamed) return _mm256_stream_si256(static_cast<__m256i*>(to), both);
      _mm256_storeu_si256(static_cast<__m256i*>(to), both);
    } else {
      void* const behind = static_cast<char*>(to) + (kType == DataType::kFloat32 ? 32 : 16);
      kStreamed ? stream<kType>(to, first) : store<kType>(to, first);
      kStreamed ? stream<kType>(behind, second) : store<kType>(behind, second);
    }
  }
  AGOQ_INLINE __m128i bfloat16(Vector x) {
    const __m256i halves = upper_halves(x);
    return _mm_packus_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
  }
  /// Rounded to bfloat16, in the low bits.
  AGOQ_INLINE __m256i upper_halves(Vector x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    return _mm256_srli_epi32(_mm256_add_epi32(u, half), 16);
  }
};

/// An element format's vector operations.
template <class Format>
struct Element;

template <class Format, int kBlock>
using Kernels = BlockKernels<Avx2, Element<Format>, kBlock>;

}  // namespace
}  // namespace agoq
