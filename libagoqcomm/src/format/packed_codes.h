// Codes of up to eight bits in a row of bytes: each begins at the lowest bit that the one
// before has left free.
#pragma once

#include <cstdint>

#include "format/float_bits.h"

namespace agoq {

/// Code `i`, as an unsigned number.
template <int kBits>
AGOQ_HD std::int32_t get_code(const std::uint8_t* codes, std::int64_t i) {
  const std::int64_t bit = i * kBits;
  const std::uint8_t* from = codes + bit / 8;
  const int shift = static_cast<int>(bit % 8);
  std::uint32_t word = from[0];
  if (shift + kBits > 8) word |= static_cast<std::uint32_t>(from[1]) << 8;
  return static_cast<std::int32_t>(word >> shift & ((1u << kBits) - 1u));
}

/// Takes the low bits of `code`. Codes must be put in ascending order, from one that begins a byte:
/// a byte's first code overwrites it, which spares a buffer the clearing.
template <int kBits>
AGOQ_HD void put_code(std::uint8_t* codes, std::int64_t i, std::int32_t code) {
  const std::int64_t bit = i * kBits;
  std::uint8_t* to = codes + bit / 8;
  const int shift = static_cast<int>(bit % 8);
  const std::uint32_t word = (static_cast<std::uint32_t>(code) & ((1u << kBits) - 1u)) << shift;
  to[0] = static_cast<std::uint8_t>(shift == 0 ? word : to[0] | word);
  if (shift + kBits > 8) to[1] = static_cast<std::uint8_t>(word >> 8);
}

}  // namespace agoq
