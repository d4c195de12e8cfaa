// fp4 and int4 on AVX-512: a code picks its number from a register of 16.
#include "codec/cpu/avx512.h"
#include "codec/cpu/avx512_codes.h"
#include "format/fp4.h"
#include "format/int4.h"

namespace agoq {
namespace {

alignas(64) constexpr float kFp4Numbers[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                               4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                               -2.0f, -3.0f, -4.0f, -6.0f};
alignas(64) constexpr float kInt4Numbers[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                -8, -7, -6, -5, -4, -3, -2, -1};

template <class Format, class Base, const float (&kNumbers)[16]>
struct FourBits : Base {
  using Codes = typename Base::Codes;
  static constexpr int kBits = Format::kBits;
  static constexpr float kMax = Format::kMax;
  static constexpr bool kCompact = true;

  AGOQ_INLINE __m512 load(const std::uint8_t* codes) {
    return _mm512_permutexvar_ps(load_nibbles(codes), _mm512_load_ps(kNumbers));
  }
  template <int kVectors>
  AGOQ_INLINE void store(const Codes (&group)[kVectors], std::uint8_t* codes) {
    store_nibbles<kVectors>(Base::bytes(group), codes);
  }
};

template <>
struct Element<Fp4> : FourBits<Fp4, FloatCodes<1>, kFp4Numbers> {};
template <>
struct Element<Int4> : FourBits<Int4, IntegerCodes, kInt4Numbers> {};

}  // namespace

template <>
const KernelTable* avx512_kernels<Fp4>(int block) {
  return table_for_block<Kernels, Fp4>(block);
}
template <>
const KernelTable* avx512_kernels<Int4>(int block) {
  return table_for_block<Kernels, Int4>(block);
}

}  // namespace agoq
