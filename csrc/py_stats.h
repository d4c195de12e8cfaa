// Counters as Python sees them, for operations that were called: {"all_reduce": {"calls": 3, ...}}.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "agoqcomm/stats.h"

namespace agoq {

inline pybind11::dict to_dict(const OperationStats& stats) {
  pybind11::dict reasons;
  for (int i = 0; i < kExactReasonCount; ++i) {
    const auto calls = stats.exact_by_reason[static_cast<std::size_t>(i)];
    if (calls == 0) continue;
    reasons[pybind11::str(std::string(to_string(static_cast<ExactReason>(i))))] = calls;
  }
  pybind11::dict result;
  result["calls"] = stats.quantized_calls + stats.exact_calls;
  result["quantized_calls"] = stats.quantized_calls;
  result["exact_calls"] = stats.exact_calls;
  result["exact_by_reason"] = reasons;
  result["elements"] = stats.elements;
  result["wire_bytes"] = stats.wire_bytes;
  result["wire_bytes_between_nodes"] = stats.wire_bytes_between_nodes;
  result["exact_bytes"] = stats.exact_bytes;
  result["encode_seconds"] = stats.encode_seconds;
  result["sum_seconds"] = stats.sum_seconds;
  result["decode_seconds"] = stats.decode_seconds;
  result["wait_seconds"] = stats.wait_seconds;
  result["total_seconds"] = stats.total_seconds;
  return result;
}

inline pybind11::dict to_dict(const Stats& stats) {
  pybind11::dict result;
  for (int i = 0; i < kOperationCount; ++i) {
    const auto operation = static_cast<Operation>(i);
    const OperationStats& one = of(stats, operation);
    if (one.quantized_calls + one.exact_calls == 0) continue;
    result[pybind11::str(std::string(to_string(operation)))] = to_dict(one);
  }
  return result;
}

}  // namespace agoq
