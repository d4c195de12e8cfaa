// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11): random numbers as a pure function of a counter
// and a key, so that any element's number can be had on any device in any order.
#pragma once

#include <cstdint>

#include "format/float_bits.h"

namespace agoq {

struct PhiloxBlock {
  std::uint32_t word[4];
};

AGOQ_HD constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                         std::uint32_t key1) {
  std::uint32_t (&c)[4] = counter.word;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    const std::uint32_t c1 = c[1];
    const std::uint32_t c3 = c[3];
    c[0] = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c[1] = static_cast<std::uint32_t>(p1);
    c[2] = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c[3] = static_cast<std::uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// The numbers of elements 4 * quad to 4 * quad + 3. `rank` is below 2^24, `stage` below 2^8.
AGOQ_HD constexpr PhiloxBlock rounding_words(std::uint64_t seed, std::uint64_t quad,
                                             std::uint32_t call, std::uint32_t rank,
                                             std::uint32_t stage) {
  const PhiloxBlock counter{{static_cast<std::uint32_t>(quad),
                             static_cast<std::uint32_t>(quad >> 32), call, rank | stage << 24}};
  return philox4x32(counter, static_cast<std::uint32_t>(seed),
                    static_cast<std::uint32_t>(seed >> 32));
}

/// A word's upper 24 bits as a number in [0, 1): all of them exact in fp32.
AGOQ_HD constexpr float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// The authors' known answer for counter and key of zero.
static_assert(philox4x32({}, 0, 0).word[0] == 0x6627e8d5u);
static_assert(philox4x32({}, 0, 0).word[3] == 0x9b00dbd8u);

}  // namespace agoq
