// The arithmetic of two levels, written down once more from docs/numerics.md: whole chunks at a
// time, with the codec's encode and decode only, and sums by plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "contract_oracle.h"
#include "group_testing.h"

namespace agoq::testing {

/// The node of each rank, nodes numbered by their lowest rank.
using Nodes = std::vector<int>;

inline std::vector<int> ranks_of(const Nodes& nodes, int node) {
  std::vector<int> ranks;
  for (int rank = 0; rank < std::ssize(nodes); ++rank) {
    if (nodes[rank] == node) ranks.push_back(rank);
  }
  return ranks;
}

inline int node_count(const Nodes& nodes) {
  return *std::max_element(nodes.begin(), nodes.end()) + 1;
}

inline std::string name_of(const Nodes& nodes) {
  std::string name;
  for (const int node : nodes) name += std::to_string(node);
  return name;
}

/// Two nodes of two ranks, three of them, 3 + 1, 1 + 2 + 3, nodes whose ranks do not lie together,
/// and, where two levels have nothing to do, 1 x 3 and 4 x 1.
inline const std::vector<Nodes> kTopologies = {
    {0, 0, 1, 1},    {0, 0, 1, 1, 2, 2},    {0, 0, 0, 1}, {0, 1, 1, 2, 2, 2},
    {0, 1, 1, 0, 0}, {0, 1, 2, 0, 1, 2, 1}, {0, 0, 0},    {0, 1, 2, 3}};

/// The rank of a node that sums block `block` of an owner's chunk of `blocks`. Number i of g ranks
/// owns the stretch [i/g, (i+1)/g) of its node, and number j of h ranks collects [j/h, (j+1)/h).
inline int collector_of(const Nodes& nodes, int owner, int node, std::int64_t block,
                        std::int64_t blocks) {
  const std::vector<int> owners = ranks_of(nodes, nodes[owner]);
  const std::vector<int> collectors = ranks_of(nodes, node);
  if (node == nodes[owner]) return owner;
  const std::int64_t g = std::ssize(owners);
  const std::int64_t h = std::ssize(collectors);
  const std::int64_t i = std::find(owners.begin(), owners.end(), owner) - owners.begin();
  int chosen = collectors[0];
  for (std::int64_t j = 0; j < h; ++j) {
    const std::int64_t start = j * g - i * h;  // In units of which a chunk has h.
    if (start < h && blocks * std::max<std::int64_t>(start, 0) / h <= block) {
      chosen = collectors[j];
    }
  }
  return chosen;
}

/// Counts of an all-reduce's chunks: blocks shared evenly among nodes, then among a node's ranks.
inline std::vector<std::int64_t> two_level_counts(std::int64_t count, const Nodes& nodes,
                                                  int block) {
  const std::int64_t blocks = (count + block - 1) / block;
  const std::vector<std::int64_t> of_node = balanced_counts(blocks, node_count(nodes), 1);
  std::vector<std::int64_t> counts;
  std::int64_t left = count;
  std::vector<int> seen(node_count(nodes));
  for (const int node : nodes) {
    const auto ranks = static_cast<int>(std::ssize(ranks_of(nodes, node)));
    const std::int64_t share = balanced_counts(of_node[node], ranks, 1)[seen[node]++];
    counts.push_back(std::min(share * block, left));
    left -= counts.back();
  }
  return counts;
}

/// The owner's scaled fp32 sum of one chunk; `pieces` has every rank's. bf16 scales.
inline OracleSum two_level_sum(const Codec& codec, DataType type, const std::vector<Bytes>& pieces,
                               const Nodes& nodes, int owner, float factor) {
  const auto count = static_cast<std::int64_t>(pieces[0].size() / size_of(type));
  const std::int64_t block = codec.format().block;
  const std::int64_t blocks = (count + block - 1) / block;
  OracleSum result{std::vector<float>(count), std::vector<double>(count),
                   std::vector<double>(count)};
  std::vector<double> magnitude(count);
  for (int node = 0; node < node_count(nodes); ++node) {
    const std::vector<int> ranks = ranks_of(nodes, node);
    std::vector<float> node_sum(count);
    for (const int rank : ranks) {
      const Bytes encoded = encode(codec, pieces[rank], type);
      const std::vector<float> decoded = decode(codec, encoded, count);
      std::vector<double> half_steps(count);
      add_half_steps(codec, encoded, count, std::abs(factor), half_steps);
      for (std::int64_t i = 0; i < count; ++i) {
        const bool own = rank == collector_of(nodes, owner, node, i / block, blocks);
        const float x = own ? load_value(type, pieces[rank].data(), i) : decoded[i];
        if (!own) result.bound[i] += half_steps[i];
        node_sum[i] = rank == ranks[0] ? x : node_sum[i] + x;
        magnitude[i] += std::abs(x);
        result.exact[i] += value_at(pieces[rank], type, i);
      }
    }
    if (node != nodes[owner]) {
      const Bytes encoded = encode(codec, to_bytes(node_sum), DataType::kFloat32);
      node_sum = decode(codec, encoded, count);
      add_half_steps(codec, encoded, count, std::abs(factor), result.bound);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      result.sum[i] = node == 0 ? node_sum[i] : result.sum[i] + node_sum[i];
      // A block's step may exceed the sum of what it rounds to zero.
      magnitude[i] += std::abs(node_sum[i]);
    }
  }
  for (std::int64_t i = 0; i < count; ++i) {
    result.sum[i] = factor == 1.0f ? result.sum[i] : result.sum[i] * factor;
    result.exact[i] *= factor;
    result.bound[i] += magnitude[i] * std::abs(factor) * pieces.size() * 0x1p-24;
  }
  return result;
}

inline Expected expected_two_level_chunk(const Codec& codec, DataType type,
                                         const std::vector<Bytes>& pieces, const Nodes& nodes,
                                         int owner, float factor) {
  OracleSum sum = two_level_sum(codec, type, pieces, nodes, owner, factor);
  add_output_rounding(type, sum.exact, sum.bound);
  return {to_type(sum.sum, type), sum.exact, sum.bound};
}

inline Expected expected_two_level_all_reduce(const Codec& codec, DataType type,
                                              const std::vector<Bytes>& inputs, const Nodes& nodes,
                                              float factor) {
  const auto count = static_cast<std::int64_t>(inputs[0].size() / size_of(type));
  const std::vector<std::int64_t> counts = two_level_counts(count, nodes, codec.format().block);
  Expected all;
  std::int64_t offset = 0;
  for (int owner = 0; owner < std::ssize(nodes); ++owner) {
    std::vector<Bytes> pieces;
    for (const Bytes& input : inputs) pieces.push_back(slice(input, type, offset, counts[owner]));
    offset += counts[owner];
    OracleSum sum = two_level_sum(codec, type, pieces, nodes, owner, factor);
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

inline std::vector<const void*> chunks_in(const Bytes& values, DataType type,
                                          const std::vector<std::int64_t>& counts) {
  std::vector<const void*> chunks;
  std::int64_t offset = 0;
  for (const std::int64_t count : counts) {
    chunks.push_back(values.data() + offset * static_cast<std::int64_t>(size_of(type)));
    offset += count;
  }
  return chunks;
}

}  // namespace agoq::testing
