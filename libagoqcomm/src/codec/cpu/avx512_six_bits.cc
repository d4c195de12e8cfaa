// e2m3 and int6 on AVX-512.
#include "codec/cpu/avx512.h"
#include "codec/cpu/avx512_codes.h"
#include "format/e2m3.h"
#include "format/int6.h"

namespace agoq {
namespace {

/// Where lane i's code begins: see load_six_bits().
AGOQ_INLINE __m512i first_bits() {
  return _mm512_setr_epi32(0, 6, 4, 2, 0, 6, 4, 2, 0, 6, 4, 2, 0, 6, 4, 2);
}

template <class Format, class Base>
struct SixBits : Base {
  using Codes = typename Base::Codes;
  static constexpr int kBits = Format::kBits;
  static constexpr float kMax = Format::kMax;
  static constexpr bool kCompact = true;

  template <int kVectors>
  AGOQ_INLINE void store(const Codes (&group)[kVectors], std::uint8_t* codes) {
    store_six_bits<kVectors>(Base::bytes(group), codes);
  }
};

template <>
struct Element<E2m3> : SixBits<E2m3, FloatCodes<3>> {
  AGOQ_INLINE __m512 load(const std::uint8_t* codes) {
    // Magnitudes 0 to 15, and 16 to 31.
    const __m512 low = _mm512_setr_ps(0.0f, 0.125f, 0.25f, 0.375f, 0.5f, 0.625f, 0.75f, 0.875f,
                                      1.0f, 1.125f, 1.25f, 1.375f, 1.5f, 1.625f, 1.75f, 1.875f);
    const __m512 high = _mm512_setr_ps(2.0f, 2.25f, 2.5f, 2.75f, 3.0f, 3.25f, 3.5f, 3.75f,  //
                                       4.0f, 4.5f, 5.0f, 5.5f, 6.0f, 6.5f, 7.0f, 7.5f);
    const __m512i code = _mm512_srlv_epi32(load_six_bits(codes), first_bits());
    const __m512i magnitude = _mm512_castps_si512(_mm512_permutex2var_ps(low, code, high));
    const __m512i sign = _mm512_and_si512(_mm512_slli_epi32(code, 26),
                                          _mm512_set1_epi32(static_cast<int>(kSignBit)));
    return _mm512_castsi512_ps(_mm512_or_si512(magnitude, sign));
  }
};

template <>
struct Element<Int6> : SixBits<Int6, IntegerCodes> {
  AGOQ_INLINE __m512 load(const std::uint8_t* codes) {
    // The sign to the top, then down again with the rest behind it.
    const __m512i below_top = _mm512_sub_epi32(_mm512_set1_epi32(26), first_bits());
    const __m512i top = _mm512_sllv_epi32(load_six_bits(codes), below_top);
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 26));
  }
};

}  // namespace

template <>
const KernelTable* avx512_kernels<E2m3>(int block) {
  return table_for_block<Kernels, E2m3>(block);
}
template <>
const KernelTable* avx512_kernels<Int6>(int block) {
  return table_for_block<Kernels, Int6>(block);
}

}  // namespace agoq
