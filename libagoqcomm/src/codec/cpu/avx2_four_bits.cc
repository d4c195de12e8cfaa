// fp4 and int4 on AVX2.
#include "codec/cpu/avx2.h"
#include "codec/cpu/avx2_codes.h"
#include "format/fp4.h"
#include "format/int4.h"

namespace agoq {
namespace {

template <class Format, class Base>
struct FourBits : Base {
  using Codes = typename Base::Codes;
  static constexpr int kBits = Format::kBits;
  static constexpr float kMax = Format::kMax;
  static constexpr bool kCompact = true;

  AGOQ_INLINE void store(const Codes (&group)[4], std::uint8_t* codes) {
    store_nibbles(Base::bytes(group), codes);
  }
};

template <>
struct Element<Fp4> : FourBits<Fp4, FloatCodes<1>> {
  AGOQ_INLINE __m256 load(const std::uint8_t* codes) {
    const __m256 magnitudes = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    const __m256i code = _mm256_srlv_epi32(load_nibbles(codes), first_bits_of_nibbles());
    const __m256 sign = _mm256_castsi256_ps(_mm256_slli_epi32(code, 28));
    // The lowest three bits pick a magnitude.
    return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, code),
                        _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
  }
};

template <>
struct Element<Int4> : FourBits<Int4, IntegerCodes> {
  AGOQ_INLINE __m256 load(const std::uint8_t* codes) {
    // The sign to the top, then down again with the rest behind it.
    const __m256i below_top = _mm256_sub_epi32(_mm256_set1_epi32(28), first_bits_of_nibbles());
    const __m256i top = _mm256_sllv_epi32(load_nibbles(codes), below_top);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
  }
};

}  // namespace

template <>
const KernelTable* avx2_kernels<Fp4>(int block) {
  return table_for_block<Kernels, Fp4>(block);
}
template <>
const KernelTable* avx2_kernels<Int4>(int block) {
  return table_for_block<Kernels, Int4>(block);
}

}  // namespace agoq
