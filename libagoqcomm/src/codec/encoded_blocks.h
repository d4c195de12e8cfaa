// Where the codes and the scales of encoded blocks lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "agoqcomm/block_format.h"
#include "format/float_bits.h"
#include "format/scale.h"

namespace agoq {

constexpr std::int64_t scale_size(ScaleType type) { return type == ScaleType::kBfloat16 ? 2 : 4; }

AGOQ_HD float load_scale(const std::uint8_t* scales, std::int64_t block, ScaleType type) {
  std::uint32_t raw = 0;
  if (type == ScaleType::kBfloat16) {
    std::uint16_t upper;
    __builtin_memcpy(&upper, scales + 2 * block, 2);
    raw = static_cast<std::uint32_t>(upper) << 16;
  } else {
    __builtin_memcpy(&raw, scales + 4 * block, 4);
  }
  return canonical_scale(from_bits(raw));
}

AGOQ_HD void store_scale(std::uint8_t* scales, std::int64_t block, ScaleType type, float scale) {
  const std::uint32_t raw = bits(scale);
  if (type == ScaleType::kBfloat16) {
    const auto upper = static_cast<std::uint16_t>(raw >> 16);
    __builtin_memcpy(scales + 2 * block, &upper, 2);
  } else {
    __builtin_memcpy(scales + 4 * block, &raw, 4);
  }
}

/// To be read.
struct EncodedBlocks {
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  ScaleType scale_type;
};

/// To be written.
struct MutableEncodedBlocks {
  std::uint8_t* codes;
  std::uint8_t* scales;
  ScaleType scale_type;
};

}  // namespace agoq
