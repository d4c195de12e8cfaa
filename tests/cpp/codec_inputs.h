// Inputs for tests of codecs, from ordinary to hostile. Knows no test framework.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "agoqcomm/block_format.h"
#include "agoqcomm/types.h"
#include "codec/values.h"

namespace agoq::testing {

using Bytes = std::vector<std::byte>;

inline constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16};
inline constexpr ElementFormat kElements[] = {ElementFormat::kInt8, ElementFormat::kFp4,
                                              ElementFormat::kE2m3, ElementFormat::kInt4,
                                              ElementFormat::kInt6};
inline constexpr int kBlocks[] = {32, 64, 128, 256, 512, 1024};
inline constexpr ScaleType kScaleTypes[] = {ScaleType::kBfloat16, ScaleType::kFloat32};

/// Kinds of input, from ordinary to hostile.
enum class Family {
  kNormal,         ///< What gradients look like.
  kRandomBits,     ///< Any pattern: NaN with payloads, infinities, everything.
  kEveryExponent,  ///< One exponent a block of 32, through the whole range.
  kMixedExponents,
  kTies,  ///< Every value halfway between two codes.
  kZeros,
  kNegative,
  kSubnormal,
  kLargest,   ///< The type's largest numbers.
  kSpecials,  ///< Normal with a rare NaN or infinity: some blocks are hit, some are not.
};
inline constexpr Family kFamilies[] = {
    Family::kNormal,  Family::kRandomBits, Family::kEveryExponent, Family::kMixedExponents,
    Family::kTies,    Family::kZeros,      Family::kNegative,      Family::kSubnormal,
    Family::kLargest, Family::kSpecials};

inline float largest_of(DataType type) {
  return type == DataType::kFloat32    ? FLT_MAX
         : type == DataType::kBfloat16 ? bfloat16_to_float(0x7f7f)
                                       : float16_to_float(0x7bff);
}

/// Element i of a family in fp32; the narrower types round it.
inline float make_value(Family family, DataType type, std::int64_t i, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
  switch (family) {
    case Family::kNormal:
      return normal(random);
    case Family::kEveryExponent:
      return std::ldexp(normal(random), static_cast<int>(i / 32 * 7 % 290) - 160);
    case Family::kMixedExponents:
      return std::ldexp(sign * (1.0f + static_cast<float>(random() % 1024) / 1024.0f),
                        static_cast<int>(random() % 254) - 127);
    case Family::kTies:
      // 127 first, so that the scale is 1 and the others lie halfway.
      return i % 32 == 0 ? 127.0f : sign * (static_cast<float>(random() % 126) + 0.5f);
    case Family::kZeros:
      return sign * 0.0f;
    case Family::kNegative:
      return -std::abs(normal(random)) - 1.0f;
    case Family::kSubnormal:
      return sign * from_bits(random() & 0x7fffffu);
    case Family::kLargest:
      return random() % 4 == 0 ? normal(random) : sign * largest_of(type);
    case Family::kSpecials:
      return random() % 200 != 0 ? normal(random)
             : random() % 2 == 0 ? sign * INFINITY
                                 : from_bits(0x7f800001u | (random() & 0x803fffffu));
    case Family::kRandomBits:
      break;
  }
  return from_bits(random());
}

inline Bytes make_input(Family family, DataType type, std::int64_t count, unsigned seed) {
  std::mt19937 random(seed * 1000003u + static_cast<unsigned>(family));
  Bytes bytes(static_cast<std::size_t>(count) * size_of(type));
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = make_value(family, type, i, random);
    store_value(type, bytes.data(), i, x);
  }
  if (family == Family::kRandomBits) {  // rounding would have made all NaN alike
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  }
  return bytes;
}

inline Bytes to_bytes(const std::vector<float>& values) {
  Bytes bytes(values.size() * 4);
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::vector<float> to_floats(const Bytes& bytes, DataType type) {
  std::vector<float> values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_value(type, bytes.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

}  // namespace agoq::testing
