// Element types and reductions as the library's callers name them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "agoqcomm/export.h"

namespace agoq {

/// Element type of a caller's buffer. The values travel in the call label: append, never reorder.
enum class DataType : std::uint8_t {
  kFloat32 = 0,
  kBfloat16 = 1,
  kFloat16 = 2,
  kFloat64 = 3,
  kInt8 = 4,
  kUint8 = 5,
  kInt16 = 6,
  kInt32 = 7,
  kInt64 = 8,
  kBool = 9,
  kComplex64 = 10,
  kComplex128 = 11,
  kOther = 255,  ///< Moved as bytes only; never reduced.
};

/// What a reduction does. The values travel in the call label: append, never reorder.
enum class ReduceOp : std::uint8_t {
  kSum = 0,
  kAvg = 1,        ///< Sum, then times 1/ranks, in fp32.
  kPremulSum = 2,  ///< Sum, then times a caller's factor, in fp32.
  kProduct = 3,
  kMin = 4,
  kMax = 5,
  kBitAnd = 6,
  kBitOr = 7,
  kBitXor = 8,
  kNone = 255,  ///< The call moves data and reduces nothing.
};

/// The collective a call is; names follow MPI and torch.distributed.
enum class Operation : std::uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3,
  kReduce = 4,
  kGather = 5,
  kScatter = 6,
  kAllToAll = 7,
  kBarrier = 8,
  kSend = 9,
  kReceive = 10,
};
inline constexpr int kOperationCount = 11;

AGOQ_API std::string_view to_string(DataType type) noexcept;
AGOQ_API std::string_view to_string(ReduceOp op) noexcept;
AGOQ_API std::string_view to_string(Operation operation) noexcept;

/// Bytes of one element; 1 for kOther, whose counts are bytes.
AGOQ_API std::size_t size_of(DataType type) noexcept;

/// The codec reads and writes fp32, bf16 and fp16; every other type travels exactly.
constexpr bool is_encodable(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kBfloat16 || type == DataType::kFloat16;
}

}  // namespace agoq
