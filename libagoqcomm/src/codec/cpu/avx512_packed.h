// Packed codes of four and six bits on AVX-512, 16 or 64 of them at a time.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/cpu/block_kernels.h"

namespace agoq {
namespace {  // NOLINT(google-build-namespaces): no linker may take it for another ISA's

/// 16 nibbles, each in the lowest bits of its lane. What lies above them is not theirs.
AGOQ_INLINE __m512i load_nibbles(const std::uint8_t* codes) {
  int words[2];
  std::memcpy(words, codes, 8);
  const __m512i eight = _mm512_set1_epi32(words[0]);
  const __m512i all = _mm512_mask_set1_epi32(eight, 0xff00, words[1]);
  const __m512i places =
      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  return _mm512_srlv_epi32(all, places);
}

/// 16 codes of six bits, each from bit 6 * i % 8 of lane i on. What lies around them is not theirs.
AGOQ_INLINE __m512i load_six_bits(const std::uint8_t* codes) {
  const __m128i twelve_bytes = _mm_maskz_loadu_epi32(0x7, codes);
  // The two bytes that hold code i.
  const __m512i bytes_of_code =
      _mm512_setr_epi32(0x80800100, 0x80800100, 0x80800201, 0x80800302, 0x80800403, 0x80800403,
                        0x80800504, 0x80800605, 0x80800706, 0x80800706, 0x80800807, 0x80800908,
                        0x80800a09, 0x80800a09, 0x80800b0a, 0x80800c0b);
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(twelve_bytes), bytes_of_code);
}

/// Integers of a group's lanes as bytes, in order; of a group of two the upper half is zero.
template <int kVectors>
AGOQ_INLINE __m512i to_bytes(const __m512i (&group)[kVectors]) {
  const __m512i low = _mm512_packs_epi32(group[0], group[1]);
  __m512i high = _mm512_setzero_si512();
  if constexpr (kVectors == 4) high = _mm512_packs_epi32(group[2], group[3]);
  // Packing works within 128-bit lanes, and leaves the quarters of each register apart.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}

/// The low four bits of each byte of a group of `kVectors` registers.
template <int kVectors>
AGOQ_INLINE void store_nibbles(__m512i bytes, std::uint8_t* codes) {
  const __m512i nibbles = _mm512_and_si512(bytes, _mm512_set1_epi8(15));
  const __m512i pairs = _mm512_maddubs_epi16(nibbles, _mm512_set1_epi16(0x1001));
  const __m256i packed = _mm512_cvtepi16_epi8(pairs);
  if constexpr (kVectors == 4) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), packed);
  } else {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm256_castsi256_si128(packed));
  }
}

/// The low six bits of each byte.
template <int kVectors>
AGOQ_INLINE void store_six_bits(__m512i bytes, std::uint8_t* codes) {
  const __m512i low_bits = _mm512_and_si512(bytes, _mm512_set1_epi8(63));
  const __m512i pairs = _mm512_maddubs_epi16(low_bits, _mm512_set1_epi16(0x4001));
  const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x10000001));
  // Of each lane's four numbers of 24 bits the bytes that are used, then of the register the lanes.
  const __m512i used =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m512i order = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
  const __m512i packed = _mm512_permutexvar_epi32(order, _mm512_shuffle_epi8(fours, used));
  _mm512_mask_storeu_epi32(codes, (1 << 3 * kVectors) - 1, packed);
}

}  // namespace
}  // namespace agoq
