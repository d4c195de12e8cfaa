// Packed codes of four and six bits on AVX2: nibbles are loaded by 8, all else is by 32.
//
// Include it into files compiled for one ISA only, as block_kernels.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "codec/cpu/block_kernels.h"

namespace agoq {
namespace {  // NOLINT(google-build-namespaces): no linker may take it for another ISA's

/// 8 nibbles: all of them in every lane.
AGOQ_INLINE __m256i load_nibbles(const std::uint8_t* codes) {
  int word;
  std::memcpy(&word, codes, 4);
  return _mm256_set1_epi32(word);
}
/// Where lane i's nibble begins.
AGOQ_INLINE __m256i first_bits_of_nibbles() {
  return _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
}

/// 32 codes of six bits, each in the highest bits of its 16. What lies below them is not theirs.
AGOQ_INLINE void load_six_bits(const std::uint8_t* codes, __m256i (&words)[2]) {
  // Of 16 codes, the two bytes that hold code i, and the factor that moves it to the top.
  const __m256i bytes_of_code =
      _mm256_setr_epi8(0, 1, 0, 1, 1, 2, 2, 2, 3, 4, 3, 4, 4, 5, 5, 5,  //
                       6, 7, 6, 7, 7, 8, 8, 8, 9, 10, 9, 10, 10, 11, 11, 11);
  const __m256i to_top = _mm256_set1_epi64x(0x0100'0040'0010'0400);
  // Both of 16 bytes, as are loaded into both halves of a register at once.
  for (int i = 0; i < 2; ++i) {
    const __m256i bytes = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + 8 * i)));
    const __m256i places =
        _mm256_add_epi8(bytes_of_code, _mm256_set1_epi8(static_cast<char>(4 * i)));
    words[i] = _mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, places), to_top);
  }
}

/// Integers of a group's lanes as bytes, in order.
AGOQ_INLINE __m256i to_bytes(const __m256i (&group)[4]) {
  const __m256i low = _mm256_packs_epi32(group[0], group[1]);
  const __m256i high = _mm256_packs_epi32(group[2], group[3]);
  // Packing works within 128-bit lanes, and leaves the halves of each register apart.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

/// The low four bits of each byte.
AGOQ_INLINE void store_nibbles(__m256i bytes, std::uint8_t* codes) {
  const __m256i nibbles = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
  const __m256i pairs = _mm256_maddubs_epi16(nibbles, _mm256_set1_epi16(0x1001));
  const __m128i packed =
      _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), packed);
}

/// The low six bits of each byte.
AGOQ_INLINE void store_six_bits(__m256i bytes, std::uint8_t* codes) {
  const __m256i low_bits = _mm256_and_si256(bytes, _mm256_set1_epi8(63));
  const __m256i pairs = _mm256_maddubs_epi16(low_bits, _mm256_set1_epi16(0x4001));
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x10000001));
  // Of each half's four numbers of 24 bits the bytes that are used, then the halves together.
  const __m256i used = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const __m256i order = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
  const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(fours, used), order);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm256_castsi256_si128(packed));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + 16), _mm256_extracti128_si256(packed, 1));
}

}  // namespace
}  // namespace agoq
