// From codes in registers to numbers: what Format::dequantize(Format::get(...)) computes, bit for
// bit but for which NaN, in fewer instructions. store_values() makes the NaN canonical.
#pragma once

#include <cstdint>

#include "codec/cuda/code_vector.cuh"
#include "format/float_bits.h"
#include "format/signed_integer.h"
#include "format/small_float.h"

namespace agoq::cuda {

// What code `i` stands for before its scale: an overload for each family of formats. `i` must be
// known when this is compiled, as in an unrolled loop.

template <int kBits>
__device__ __forceinline__ float number(SignedInteger<kBits>, const std::uint32_t (&word)[2],
                                        int i) {
  if constexpr (kBits == 8 || kBits == 4) {
    // The code plus 2^(kBits - 1) becomes the last byte of 2^23, whose steps are 1. Conversions of
    // integers run at half the rate.
    constexpr std::uint32_t kSigns = kBits == 8 ? 0x80808080u : 0x88888888u;
    std::uint32_t biased = word[i * kBits / 32] ^ kSigns;
    if constexpr (kBits == 4) biased = (i % 2 == 0 ? biased : biased >> 4) & 0x0f0f0f0fu;
    const unsigned byte = kBits == 8 ? i % 4 : i / 2;
    return add(from_bits(__byte_perm(biased, 0x4b000000u, 0x7650u | byte)),
               -(0x1p23f + (1 << (kBits - 1))));
  } else {
    return static_cast<float>(static_cast<std::int32_t>(code_at_top<kBits>(word, i)) >>
                              (32 - kBits));
  }
}

/// The exponent's two bits become the lowest of fp32's. Those of a code below 1 are zero, as are
/// those of a subnormal number, whose mantissa has no hidden one either; so one exact factor mends
/// the bias of all of them. Host code may not do so: a process may have told its processor to flush
/// subnormals. Kernels are compiled without -ftz.
template <int kMantissaBits>
__device__ __forceinline__ float number(SmallFloat<kMantissaBits>, const std::uint32_t (&word)[2],
                                        int i) {
  constexpr std::uint32_t kMagnitude = ((4u << kMantissaBits) - 1u) << (23 - kMantissaBits);
  // From bits 30 and 29 to bits 24 and 23; the sign stays where it is.
  const auto top = static_cast<std::int32_t>(code_at_top<3 + kMantissaBits>(word, i));
  return mul(from_bits(static_cast<std::uint32_t>(top >> 6) & (kSignBit | kMagnitude)), 0x1p126f);
}

/// Element `i`, which must be known when this is compiled.
template <class Format>
__device__ __forceinline__ float dequantize(const CodeVector<Format>& codes, int i, float scale) {
  return mul(number(Format{}, codes.word, i), scale);
}

}  // namespace agoq::cuda
