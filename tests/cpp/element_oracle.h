// The element formats, written down once more: the numbers their codes stand for as a list, codes
// as a stream of bits, and the nearest code found by trying them all.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "agoqcomm/block_format.h"
#include "codec_inputs.h"

namespace agoq::testing {

struct ElementOracle {
  int bits = 0;
  double largest = 0;
  /// What code c stands for; nothing for a code that encoders must not write.
  std::vector<std::optional<double>> numbers;
  /// What decoders make of every code, the others too.
  std::vector<double> decoded;
};

inline ElementOracle element_oracle(ElementFormat format) {
  ElementOracle oracle;
  const auto integers = [&](int bits) {
    oracle.bits = bits;
    oracle.largest = (1 << (bits - 1)) - 1;
    for (int c = 0; c < 1 << bits; ++c) {
      oracle.decoded.push_back(c < 1 << (bits - 1) ? c : c - (1 << bits));
    }
  };
  const auto floats = [&](const std::vector<double>& magnitudes) {
    oracle.largest = magnitudes.back();
    oracle.bits = static_cast<int>(std::log2(magnitudes.size())) + 1;
    for (const double sign : {1.0, -1.0}) {
      for (const double magnitude : magnitudes) oracle.decoded.push_back(sign * magnitude);
    }
  };
  switch (format) {
    case ElementFormat::kInt8:
      integers(8);
      break;
    case ElementFormat::kInt4:
      integers(4);
      break;
    case ElementFormat::kInt6:
      integers(6);
      break;
    case ElementFormat::kFp4:
      floats({0, 0.5, 1, 1.5, 2, 3, 4, 6});
      break;
    case ElementFormat::kE2m3:
      floats({0,     0.125, 0.25,  0.375, 0.5,   0.625, 0.75, 0.875, 1,    1.125, 1.25,
              1.375, 1.5,   1.625, 1.75,  1.875, 2,     2.25, 2.5,   2.75, 3,     3.25,
              3.5,   3.75,  4,     4.5,   5,     5.5,   6,    6.5,   7,    7.5});
      break;
  }
  // Of both zeros only the positive one, and no number whose negative has no code.
  for (const double number : oracle.decoded) {
    const bool written = !(number == 0 && std::signbit(number)) && number >= -oracle.largest;
    oracle.numbers.push_back(written ? std::optional(number) : std::nullopt);
  }
  return oracle;
}

/// Code `i` of a stream of codes of `bits` bits, lowest bit first.
inline int code_at(const Bytes& codes, std::int64_t i, int bits) {
  int code = 0;
  for (int b = 0; b < bits; ++b) {
    const auto at = static_cast<std::size_t>(i * bits + b);
    code |= (static_cast<int>(codes[at / 8]) >> at % 8 & 1) << b;
  }
  return code;
}

/// The code nearest to `y`, of two equally near ones that with an even magnitude.
inline int nearest_code(const ElementOracle& oracle, double y) {
  int nearest = 0;
  for (int c = 1; c < static_cast<int>(oracle.numbers.size()); ++c) {
    if (!oracle.numbers[static_cast<std::size_t>(c)]) continue;
    const double distance = std::abs(*oracle.numbers[static_cast<std::size_t>(c)] - y);
    const double least = std::abs(*oracle.numbers[static_cast<std::size_t>(nearest)] - y);
    if (distance < least || (distance == least && c % 2 == 0)) nearest = c;
  }
  return nearest;
}

}  // namespace agoq::testing
