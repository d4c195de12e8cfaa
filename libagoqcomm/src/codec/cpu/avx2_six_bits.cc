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
  AGOQ_INLINE __m256 load(const std::uint8_t* codes) {
    // Mantissa times step plus base, both of which the sign and the exponent pick.
    const __m256 bases = _mm256_setr_ps(0.0f, 1.0f, 2.0f, 4.0f, -0.0f, -1.0f, -2.0f, -4.0f);
    const __m256 steps = _mm256_setr_ps(0.125f, 0.125f, 0.25f, 0.5f,  //
                                        -0.125f, -0.125f, -0.25f, -0.5f);
    const __m256i code = _mm256_srlv_epi32(load_six_bits(codes), first_bits_of_six());
    const __m256i binade = _mm256_srli_epi32(code, 3);
    const __m256 mantissa = _mm256_cvtepi32_ps(_mm256_and_si256(code, _mm256_set1_epi32(7)));
    return _mm256_fmadd_ps(mantissa, _mm256_permutevar8x32_ps(steps, binade),
                           _mm256_permutevar8x32_ps(bases, binade));
  }
};

template <>
struct Element<Int6> : SixBits<Int6, IntegerCodes> {
  AGOQ_INLINE __m256 load(const std::uint8_t* codes) {
    // The sign to the top, then down again with the rest behind it.
    const __m256i below_top = _mm256_sub_epi32(_mm256_set1_epi32(26), first_bits_of_six());
    const __m256i top = _mm256_sllv_epi32(load_six_bits(codes), below_top);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 26));
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
