// Exact reductions once more, an element and a rank at a time: what a soak compares with.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "codec/values.h"
#include "codec_testing.h"

namespace agoq::testing {

/// The next rank's element `x` joins those before it.
template <typename T>
T joined(T before, T x, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return before != before || before > x ? before : x;
    case ReduceOp::kMin:
      return before != before || before < x ? before : x;
    default:
      return static_cast<T>(before + x);
  }
}

template <typename T>
T finished(T sum, ReduceOp op, float factor, int ranks) {
  if (op == ReduceOp::kPremulSum) return static_cast<T>(sum * static_cast<T>(factor));
  if (op != ReduceOp::kAvg) return sum;
  if constexpr (std::is_integral_v<T>) return static_cast<T>(sum / ranks);
  return sum * (T{1} / static_cast<T>(ranks));
}

template <typename T>
T plain_load(const Bytes& bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void plain_reduce_elements(const std::vector<Bytes>& pieces, ReduceOp op, float factor,
                           Bytes& out) {
  // Integers wrap, which is done once, at the end.
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  const auto count = static_cast<std::int64_t>(out.size() / sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) {
    Wide sum = plain_load<T>(pieces[0], i);
    for (std::size_t rank = 1; rank < pieces.size(); ++rank) {
      sum = joined(sum, static_cast<Wide>(plain_load<T>(pieces[rank], i)), op);
    }
    const T result = finished(static_cast<T>(sum), op, factor, static_cast<int>(pieces.size()));
    std::memcpy(out.data() + i * static_cast<std::int64_t>(sizeof(T)), &result, sizeof(T));
  }
}

/// One piece a rank; the types and operations that a soak draws.
inline Bytes plain_reduce(const std::vector<Bytes>& pieces, DataType type, ReduceOp op,
                          float factor) {
  Bytes out(pieces[0].size());
  switch (type) {
    case DataType::kFloat32:
    case DataType::kBfloat16:
    case DataType::kFloat16: {
      const auto count = static_cast<std::int64_t>(out.size() / size_of(type));
      for (std::int64_t i = 0; i < count; ++i) {
        float sum = load_value(type, pieces[0].data(), i);
        for (std::size_t rank = 1; rank < pieces.size(); ++rank) {
          sum = joined(sum, load_value(type, pieces[rank].data(), i), op);
        }
        store_value(type, out.data(), i,
                    finished(sum, op, factor, static_cast<int>(pieces.size())));
      }
      return out;
    }
    case DataType::kFloat64:
      plain_reduce_elements<double>(pieces, op, factor, out);
      return out;
    case DataType::kInt32:
      plain_reduce_elements<std::int32_t>(pieces, op, factor, out);
      return out;
    case DataType::kUint8:
      plain_reduce_elements<std::uint8_t>(pieces, op, factor, out);
      return out;
    default:
      throw std::logic_error("a soak draws no such type");
  }
}

}  // namespace agoq::testing
