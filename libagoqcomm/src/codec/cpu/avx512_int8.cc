// int8 on AVX-512.
#include "codec/cpu/avx512.h"
#include "format/int8.h"

namespace agoq {
namespace {

template <>
struct Element<Int8> {
  using Codes = __m512i;  // 32 bits each
  static constexpr int kBits = Int8::kBits;
  static constexpr int kMax = Int8::kMax;
  static constexpr bool kCompact = false;

  AGOQ_INLINE Codes quantize(__m512 x, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
  }
  AGOQ_INLINE __m512 numbers(Codes codes) { return _mm512_cvtepi32_ps(codes); }
  AGOQ_INLINE __m512 load(const std::uint8_t* codes) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes))));
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

}  // namespace

template <>
const KernelTable* avx512_kernels<Int8>(int block) {
  return table_for_block<Kernels, Int8>(block);
}

}  // namespace agoq
