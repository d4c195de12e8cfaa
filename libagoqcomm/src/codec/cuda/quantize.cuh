// From numbers in registers to codes: what Format::encode() and encode_stochastic() compute, bit
// for bit, in fewer instructions where that matters.
#pragma once

#include <cstdint>

#include "codec/cuda/arguments.h"
#include "codec/cuda/code_vector.cuh"
#include "format/float_bits.h"
#include "format/philox.h"
#include "format/signed_integer.h"
#include "format/small_float.h"

namespace agoq::cuda {

/// Code `i` of four, of which only the low bits count, in its place.
template <int kBits>
__device__ __forceinline__ std::uint32_t in_place(std::int32_t code, int i) {
  return (static_cast<std::uint32_t>(code) & ((1u << kBits) - 1u)) << (i * kBits);
}

// The codes of four elements from the lowest bit on: an overload for each family of formats.

template <int kBits>
__device__ __forceinline__ std::uint32_t encode_four(SignedInteger<kBits>, const float* x,
                                                     float inverse) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes |= in_place<kBits>(SignedInteger<kBits>::encode(x[i], inverse), i);
  }
  return codes;
}

/// The magnitude's code in the lowest bits, and others above them. SmallFloat::encode() is the
/// readable one: the unit that is added counts the binade's steps, and the binade's own codes are
/// added to them.
template <int kMantissaBits>
__device__ __forceinline__ std::uint32_t magnitude_code(float y) {
  constexpr std::uint32_t kOneBits = 0x3f800000u;
  constexpr int kShift = 23 - kMantissaBits;
  // Takes off what the exponent of 1 leaves in the lowest bits. Even, so that ties stay ties.
  constexpr std::uint32_t kStart = (0u - (kOneBits >> kShift)) & ((4u << kMantissaBits) - 1u);
  static_assert(kStart % 2 == 0);
  const std::uint32_t binade = max(bits(y) & kInfinityBits, kOneBits);
  const float unit = from_bits(binade + ((kShift << 23) | kStart));
  return bits(add(from_bits(abs_bits(y)), unit)) + (binade >> kShift);
}

template <int kMantissaBits>
__device__ __forceinline__ std::uint32_t encode_four(SmallFloat<kMantissaBits>, const float* x,
                                                     float inverse) {
  constexpr int kBits = 3 + kMantissaBits;
  constexpr std::uint32_t kOnes = 1u | 1u << kBits | 1u << 2 * kBits | 1u << 3 * kBits;
  constexpr std::uint32_t kSigns = kOnes << (kBits - 1);
  constexpr std::uint32_t kMagnitudes = kSigns - kOnes;
  // Each shift takes in what one element has to give: its lowest bits from above, and its highest,
  // of which the sign is wanted, from below.
  std::uint32_t magnitudes = 0;
  std::uint32_t signs = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t code = magnitude_code<kMantissaBits>(mul(x[i], inverse));
    magnitudes = __funnelshift_r(magnitudes, code, kBits);
    signs = __funnelshift_l(bits(mul(x[3 - i], inverse)), signs, kBits);
  }
  magnitudes = magnitudes >> (32 - 4 * kBits) & kMagnitudes;
  // Adding the largest magnitude carries into the sign's place from any but zero, which has no
  // sign.
  return magnitudes | (signs & (magnitudes + kMagnitudes) & kSigns);
}

/// The numbers in [0, 1) of the eight elements from `first` on.
__device__ __forceinline__ void draw_uniforms(const RoundingKey& key, std::uint64_t first,
                                              float (&uniform)[kVector]) {
  const unsigned skipped = first % 4;
  std::uint32_t words[kVector + 4] = {};
#pragma unroll
  for (int quad = 0; quad < kVector / 4 + 1; ++quad) {
    if (quad == kVector / 4 && skipped == 0) break;
    const PhiloxBlock drawn =
        rounding_words(key.seed, first / 4 + quad, key.call, key.rank, key.stage);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[4 * quad + i] = drawn.word[i];
  }
  // Chosen rather than indexed, to stay in registers.
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t word = skipped == 0   ? words[i]
                               : skipped == 1 ? words[i + 1]
                               : skipped == 2 ? words[i + 2]
                                              : words[i + 3];
    uniform[i] = to_uniform(word);
  }
}

template <class Format>
__device__ __forceinline__ std::uint32_t encode_four_by_chance(const float* x, float inverse,
                                                               const float* uniform) {
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes |= in_place<Format::kBits>(Format::encode_stochastic(x[i], inverse, uniform[i]), i);
  }
  return codes;
}

template <class Format, bool kStochastic>
__device__ __forceinline__ CodeVector<Format> quantize(const float (&x)[kVector], float inverse,
                                                       const RoundingKey& key,
                                                       std::uint64_t first_element) {
  if (inverse == 0.0f) return {};  // there is perhaps a NaN in x, which has no code
  std::uint32_t fours[2];
  if constexpr (kStochastic) {
    float uniform[kVector];
    draw_uniforms(key, first_element, uniform);
    fours[0] = encode_four_by_chance<Format>(x, inverse, uniform);
    fours[1] = encode_four_by_chance<Format>(x + 4, inverse, uniform + 4);
  } else {
    fours[0] = encode_four(Format{}, x, inverse);
    fours[1] = encode_four(Format{}, x + 4, inverse);
  }
  return join_fours<Format>(fours[0], fours[1]);
}

}  // namespace agoq::cuda
