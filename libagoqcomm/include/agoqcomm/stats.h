// Counters of one group.
#pragma once

#include <array>
#include <cstdint>

#include "agoqcomm/options.h"
#include "agoqcomm/types.h"

namespace agoq {

/// Counters of one operation of one rank. Seconds are wall time of the thread that drives the call.
struct OperationStats {
  std::int64_t quantized_calls = 0;
  std::int64_t exact_calls = 0;
  std::array<std::int64_t, kExactReasonCount> exact_by_reason{};
  std::int64_t elements = 0;
  std::int64_t wire_bytes = 0;                ///< Bytes this rank sent.
  std::int64_t wire_bytes_between_nodes = 0;  ///< Those of them that went to another node.
  std::int64_t exact_bytes = 0;               ///< Bytes it would have sent in the caller's type.
  double encode_seconds = 0;
  double sum_seconds = 0;
  double decode_seconds = 0;
  double wait_seconds = 0;
  double total_seconds = 0;
};

inline OperationStats& operator+=(OperationStats& sum, const OperationStats& more) {
  sum.quantized_calls += more.quantized_calls;
  sum.exact_calls += more.exact_calls;
  for (int i = 0; i < kExactReasonCount; ++i) sum.exact_by_reason[i] += more.exact_by_reason[i];
  sum.elements += more.elements;
  sum.wire_bytes += more.wire_bytes;
  sum.wire_bytes_between_nodes += more.wire_bytes_between_nodes;
  sum.exact_bytes += more.exact_bytes;
  sum.encode_seconds += more.encode_seconds;
  sum.sum_seconds += more.sum_seconds;
  sum.decode_seconds += more.decode_seconds;
  sum.wait_seconds += more.wait_seconds;
  sum.total_seconds += more.total_seconds;
  return sum;
}

using Stats = std::array<OperationStats, kOperationCount>;

inline OperationStats& of(Stats& stats, Operation operation) {
  return stats[static_cast<std::size_t>(operation)];
}
inline const OperationStats& of(const Stats& stats, Operation operation) {
  return stats[static_cast<std::size_t>(operation)];
}

}  // namespace agoq
