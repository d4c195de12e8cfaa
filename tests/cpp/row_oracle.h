// The arithmetic of rows, written down once more: plain loops, in fp32 where the contract says what
// each operation is, and in fp64.
#pragma once

#include <cmath>
#include <vector>

#include "agoqcomm/row_codec.h"
#include "codec_testing.h"

namespace agoq::testing {

/// A row as the contract has it, number by number.
struct OracleRow {
  std::vector<float> sums;    ///< Rounded to the type.
  std::vector<float> normed;  ///< Rounded to the type; empty without a norm.
};

inline float rounded(float x, DataType type) {
  std::byte memory[4];
  store_value(type, memory, 0, canonical(x));
  return load_value(type, memory, 0);
}

/// Partial sums i % 256 over runs of 1024, folded by halves; docs/numerics.md.
inline float oracle_sum_of_squares(std::vector<float> x) {
  while (x.size() % 1024 != 0) x.push_back(0.0f);
  float total = 0.0f;
  for (std::size_t run = 0; run < x.size(); run += 1024) {
    float partial[256];
    for (std::size_t lane = 0; lane < 256; ++lane) {
      partial[lane] = x[run + lane] * x[run + lane];
      for (std::size_t i = lane + 256; i < 1024; i += 256) {
        const float square = x[run + i] * x[run + i];
        partial[lane] = partial[lane] + square;
      }
    }
    for (std::size_t half = 128; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
    }
    total += partial[0];
  }
  return total;
}

/// `sum` in fp32, `residual` empty or as long.
inline OracleRow oracle_row(const std::vector<float>& sum, const std::vector<float>& residual,
                            DataType type, const std::optional<RmsNorm>& norm) {
  OracleRow row;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    row.sums.push_back(rounded(residual.empty() ? sum[i] : sum[i] + residual[i], type));
  }
  if (!norm) return row;
  const float mean = oracle_sum_of_squares(row.sums) / static_cast<float>(sum.size());
  const float inverse = 1.0f / std::sqrt(mean + norm->epsilon);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float scaled = row.sums[i] * inverse;
    row.normed.push_back(
        rounded(norm->weight == nullptr ? scaled : scaled * norm->weight[i], type));
  }
  return row;
}

/// One row's encoding: a flat buffer of its own, cut into codes and scales.
struct OracleBytes {
  Bytes codes;
  Bytes scales;
};

inline OracleBytes oracle_encode(const Codec& codec, const Bytes& row, DataType type) {
  const auto width = static_cast<std::int64_t>(row.size() / size_of(type));
  const WireLayout layout(codec.format(), width);
  const Bytes all = encode(codec, row, type);
  return {Bytes(all.begin(), all.begin() + layout.code_bytes()),
          Bytes(all.begin() + layout.scale_offset(), all.end())};
}

/// The encoding of rows, row by row, joined as RowLayout says.
inline Bytes oracle_encode_rows(const Codec& codec, const Bytes& rows, DataType type,
                                std::int64_t width) {
  Bytes codes, scales;
  const std::int64_t bytes = width * static_cast<std::int64_t>(size_of(type));
  for (auto row = rows.begin(); row != rows.end(); row += bytes) {
    const OracleBytes encoded = oracle_encode(codec, Bytes(row, row + bytes), type);
    codes.insert(codes.end(), encoded.codes.begin(), encoded.codes.end());
    scales.insert(scales.end(), encoded.scales.begin(), encoded.scales.end());
  }
  const std::size_t alignment = codec.format().scale == ScaleType::kBfloat16 ? 2 : 4;
  while (codes.size() % alignment != 0) codes.push_back(std::byte{0});
  codes.insert(codes.end(), scales.begin(), scales.end());
  return codes;
}

}  // namespace agoq::testing
