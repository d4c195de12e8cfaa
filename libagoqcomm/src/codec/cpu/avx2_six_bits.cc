// e2m3 and int6 on AVX2.
#include "codec/cpu/avx2.h"
#include "codec/cpu/avx2_codes.h"
#include "format/e2m3.h"
#include "format/int6.h"

namespace agoq {
namespace {

template <class Format, class Base>
struct SixBits : Base {
  using Codes = typename Base::Codes;
  static constexpr int kBits = Format::kBits;
  static constexpr float kMax = Format::kMax;
  static constexpr bool kCompact = true;

  AGOQ_INLINE void store(const Codes (&group)[4], std::uint8_t* codes) {
    store_six_bits(Base::bytes(group), codes);
  }
};

template <>
struct Element<E2m3> : SixBits<E2m3, FloatCodes<3>> {
  AGOQ_INLINE void load_group(const std::uint8_t* codes, __m256 (&numbers)[4]) {
    __m256i words[2];
    load_six_bits(codes, words);
    const __m256 unit = _mm256_set1_ps(0x1p14f);
    for (int i = 0; i < 2; ++i) {
      // A half with the code's sign, as the lowest exponent bits and the highest of the mantissa
      // the rest of it: 2^-14 of the number, subnormal halves too, which no mode flushes.
      const __m256i half = _mm256_and_si256(_mm256_srai_epi16(words[i], 3),
                                            _mm256_set1_epi16(static_cast<short>(0x8f80)));
      numbers[2 * i] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), unit);
      numbers[2 * i + 1] = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), unit);
    }
  }
};

template <>
struct Element<Int6> : SixBits<Int6, IntegerCodes> {
  AGOQ_INLINE void load_group(const std::uint8_t* codes, __m256 (&numbers)[4]) {
    __m256i words[2];
    load_six_bits(codes, words);
    for (int i = 0; i < 2; ++i) {
      const __m256i integers = _mm256_srai_epi16(words[i], 10);
      const __m128i low = _mm256_castsi256_si128(integers);
      const __m128i high = _mm256_extracti128_si256(integers, 1);
      numbers[2 * i] = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(low));
      numbers[2 * i + 1] = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(high));
    }
  }
};

}  // namespace

template <>
const KernelTable* avx2_kernels<E2m3>(int block) {
  return table_for_block<Kernels, E2m3>(block);
}
template <>
const KernelTable* avx2_kernels<Int6>(int block) {
  return table_for_block<Kernels, Int6>(block);
}

}  // namespace agoq
