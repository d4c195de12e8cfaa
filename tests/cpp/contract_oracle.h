// The numeric contract of the collectives, written down once more: whole chunks at a time, with the
// codec's encode and decode only, and sums by a plain loop.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "agoqcomm/codec.h"
#include "codec/values.h"
#include "codec_testing.h"

namespace agoq::testing {

/// One rank's elements, as fp64 too.
inline double value_at(const Bytes& values, DataType type, std::int64_t i) {
  return load_value(type, values.data(), i);
}

inline Bytes slice(const Bytes& values, DataType type, std::int64_t offset, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(size_of(type));
  return Bytes(values.begin() + offset * size, values.begin() + (offset + count) * size);
}

/// Counts of an all-reduce's chunks: whole blocks, the first chunks one more where they must.
inline std::vector<std::int64_t> balanced_counts(std::int64_t count, int ranks, int block) {
  std::vector<std::int64_t> counts;
  const std::int64_t blocks = (count + block - 1) / block;
  std::int64_t start = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t share = blocks / ranks + (rank < blocks % ranks ? 1 : 0);
    const std::int64_t end = std::min(start + share * block, count);
    counts.push_back(end - start);
    start = end;
  }
  return counts;
}

/// A sum and how far it may be from the exact one.
struct OracleSum {
  std::vector<float> sum;
  std::vector<double> exact;
  std::vector<double> bound;
};

/// Half of a block's step at each element, from the scales in the encoded bytes; and what the
/// product with the rounded 1/scale may move a quotient of up to 127 across a tie.
inline void add_half_steps(const Codec& codec, const Bytes& encoded, std::int64_t count,
                           double factor, std::vector<double>& bound) {
  const WireLayout layout(codec.format(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t scale;
    const std::int64_t block = i / codec.format().block;
    std::memcpy(&scale, encoded.data() + layout.scale_offset() + 2 * block, 2);
    bound[i] += (0.5 + 127 * 0x1p-23) * bfloat16_to_float(scale) * factor;
  }
}

/// The owner's scaled fp32 sum of one chunk; `pieces` has every rank's, in rank order. bf16 scales.
inline OracleSum oracle_sum(const Codec& codec, DataType type, const std::vector<Bytes>& pieces,
                            int owner, float factor) {
  const auto count = static_cast<std::int64_t>(pieces[0].size() / size_of(type));
  OracleSum result{std::vector<float>(count), std::vector<double>(count),
                   std::vector<double>(count)};
  std::vector<double> magnitude(count);
  for (int rank = 0; rank < static_cast<int>(pieces.size()); ++rank) {
    std::vector<float> decoded(count);
    if (rank == owner) {
      for (std::int64_t i = 0; i < count; ++i)
        decoded[i] = load_value(type, pieces[rank].data(), i);
    } else {
      const Bytes encoded = encode(codec, pieces[rank], type);
      decoded = decode(codec, encoded, count);
      add_half_steps(codec, encoded, count, std::abs(factor), result.bound);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      result.sum[i] = rank == 0 ? decoded[i] : result.sum[i] + decoded[i];
      result.exact[i] += value_at(pieces[rank], type, i);
      magnitude[i] += std::abs(decoded[i]);
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    result.sum[i] = factor == 1.0f ? result.sum[i] : result.sum[i] * factor;
    result.exact[i] *= factor;
    // Each fp32 addition and the product round once.
    result.bound[i] += magnitude[i] * std::abs(factor) * pieces.size() * 0x1p-24;
  }
  return result;
}

/// Adds what rounding to the caller's type may change.
inline void add_output_rounding(DataType type, const std::vector<double>& values,
                                std::vector<double>& bound) {
  const double half_ulp = type == DataType::kBfloat16  ? 0x1p-8
                          : type == DataType::kFloat16 ? 0x1p-11
                                                       : 0x1p-24;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    bound[i] += (std::abs(values[i]) + bound[i]) * half_ulp + 0x1p-25;
  }
}

inline Bytes to_type(const std::vector<float>& values, DataType type) {
  Bytes bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) store_value(type, bytes.data(), i, values[i]);
  return bytes;
}

/// What a rank should hold, and how far it may be from the exact result.
struct Expected {
  Bytes values;
  std::vector<double> exact;
  std::vector<double> bound;
};

inline Expected expected_reduced_chunk(const Codec& codec, DataType type,
                                       const std::vector<Bytes>& pieces, int owner, float factor) {
  OracleSum sum = oracle_sum(codec, type, pieces, owner, factor);
  add_output_rounding(type, sum.exact, sum.bound);
  return {to_type(sum.sum, type), sum.exact, sum.bound};
}

inline Expected expected_all_reduce(const Codec& codec, DataType type,
                                    const std::vector<Bytes>& inputs, float factor) {
  const auto count = static_cast<std::int64_t>(inputs[0].size() / size_of(type));
  const auto ranks = static_cast<int>(inputs.size());
  const std::vector<std::int64_t> counts = balanced_counts(count, ranks, codec.format().block);
  Expected all;
  std::int64_t offset = 0;
  for (int owner = 0; owner < ranks; ++owner) {
    std::vector<Bytes> pieces;
    for (const Bytes& input : inputs) pieces.push_back(slice(input, type, offset, counts[owner]));
    offset += counts[owner];
    OracleSum sum = oracle_sum(codec, type, pieces, owner, factor);
    const Bytes encoded = encode(codec, to_bytes(sum.sum), DataType::kFloat32);
    add_half_steps(codec, encoded, counts[owner], 1.0, sum.bound);
    add_output_rounding(type, sum.exact, sum.bound);
    const Bytes values = to_type(decode(codec, encoded, counts[owner]), type);
    all.values.insert(all.values.end(), values.begin(), values.end());
    all.exact.insert(all.exact.end(), sum.exact.begin(), sum.exact.end());
    all.bound.insert(all.bound.end(), sum.bound.begin(), sum.bound.end());
  }
  return all;
}

/// Byte for byte the oracle's, and within the bound of the exact result.
inline void expect_contract(const Expected& expected, const Bytes& actual, DataType type) {
  EXPECT_TRUE(actual == expected.values) << "differs from the oracle";
  std::int64_t outside = 0;
  for (std::size_t i = 0; i < expected.exact.size(); ++i) {
    outside += std::abs(value_at(actual, type, i) - expected.exact[i]) > expected.bound[i];
  }
  EXPECT_EQ(outside, 0) << "elements outside the contract's bound";
}

inline float factor_of(ReduceOp op, int ranks, float premul) {
  if (op == ReduceOp::kAvg) return 1.0f / static_cast<float>(ranks);
  return op == ReduceOp::kPremulSum ? premul : 1.0f;
}

inline std::vector<Bytes> make_inputs(Family family, DataType type, std::int64_t count, int ranks,
                                      unsigned seed) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(make_input(family, type, count, seed * 100u + static_cast<unsigned>(rank)));
  }
  return inputs;
}

}  // namespace agoq::testing
