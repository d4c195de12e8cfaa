// The scale of a block, and the factor its elements are multiplied by before they become codes.
#pragma once

#include <cstdint>

#include "agoqcomm/block_format.h"
#include "format/float_bits.h"

namespace agoq {

struct BlockScale {
  float scale;    ///< What decode multiplies a code by. +0: a block of zeros. NaN: a block of NaN.
  float inverse;  ///< 1 / scale, correctly rounded. 0: all codes are 0, whatever the elements are.
};

/// Scales below this become zero, which keeps everything downstream out of the subnormals: a
/// process that flushes them agrees with one that does not.
inline constexpr float kSmallestScale = 0x1p-100f;

/// Rounds a positive finite number up to bfloat16.
AGOQ_HD constexpr float round_up_to_bfloat16(float x) {
  return from_bits((bits(x) + 0xffffu) & 0xffff0000u);
}

/// `absmax` is the largest abs_bits() of the block; `code_max` the largest magnitude a code stands
/// for.
///
/// A bf16 scale is rounded up, so that no element exceeds code_max * scale, and the product of a
/// code and a scale is exact in fp32 for codes of up to 16 significant bits.
AGOQ_HD BlockScale make_scale(std::uint32_t absmax, float code_max, ScaleType type) {
  if (absmax >= kInfinityBits) return {from_bits(kCanonicalNanBits), 0.0f};
  float scale = div(from_bits(absmax), code_max);
  if (type == ScaleType::kBfloat16) scale = round_up_to_bfloat16(scale);
  // As bits, since comparing subnormals as numbers depends on the processor's mode.
  if (bits(scale) < bits(kSmallestScale)) return {0.0f, 0.0f};
  return {scale, div(1.0f, scale)};
}

/// A scale as read from encoded bytes. An infinite one, which no encoder writes, decodes as NaN
/// does.
AGOQ_HD constexpr float canonical_scale(float scale) {
  return abs_bits(scale) >= kInfinityBits ? from_bits(kCanonicalNanBits) : scale;
}

static_assert(bits(round_up_to_bfloat16(1.0f)) == 0x3f800000u);
static_assert(bits(round_up_to_bfloat16(from_bits(0x3f800001u))) == 0x3f810000u);

}  // namespace agoq
