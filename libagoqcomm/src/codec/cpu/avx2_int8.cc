// int8 on AVX2.
#include "codec/cpu/avx2.h"
#include "format/int8.h"

namespace agoq {
namespace {

template <>
struct Element<Int8> {
  using Codes = __m256i;  // 32 bits each
  static constexpr int kBits = Int8::kBits;
  static constexpr int kMax = Int8::kMax;
  static constexpr bool kCompact = false;

  AGOQ_INLINE Codes quantize(__m256 x, __m256 inverse) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(x, inverse));
  }
  AGOQ_INLINE __m256 numbers(Codes codes) { return _mm256_cvtepi32_ps(codes); }
  AGOQ_INLINE __m256 load(const std::uint8_t* codes) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes))));
  }

  AGOQ_INLINE void store(const Codes (&group)[4], std::uint8_t* codes) {
    const __m256i low = _mm256_packs_epi32(group[0], group[1]);
    const __m256i high = _mm256_packs_epi32(group[2], group[3]);
    // Packing works within 128-bit lanes, and leaves the halves of each register apart.
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i packed = _mm256_packs_epi16(low, high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
};

}  // namespace

template <>
const KernelTable* avx2_kernels<Int8>(int block) {
  return table_for_block<Kernels, Int8>(block);
}

}  // namespace agoq
