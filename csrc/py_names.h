// The names that Python passes for the core's enumerations: those of the core's own to_string.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "agoqcomm/codec.h"
#include "agoqcomm/error.h"
#include "agoqcomm/types.h"

namespace agoq {

template <typename Enum>
struct Named;

template <>
struct Named<DataType> {
  static constexpr std::string_view kWhat = "data type";
  static constexpr std::array kAll{DataType::kFloat32, DataType::kBfloat16,  DataType::kFloat16,
                                   DataType::kFloat64, DataType::kInt8,      DataType::kUint8,
                                   DataType::kInt16,   DataType::kInt32,     DataType::kInt64,
                                   DataType::kBool,    DataType::kComplex64, DataType::kComplex128};
};

template <>
struct Named<ReduceOp> {
  static constexpr std::string_view kWhat = "reduce op";
  static constexpr std::array kAll{ReduceOp::kSum,     ReduceOp::kAvg,   ReduceOp::kPremulSum,
                                   ReduceOp::kProduct, ReduceOp::kMin,   ReduceOp::kMax,
                                   ReduceOp::kBitAnd,  ReduceOp::kBitOr, ReduceOp::kBitXor};
};

template <>
struct Named<CpuIsa> {
  static constexpr std::string_view kWhat = "CPU instruction set";
  static constexpr std::array kAll{CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512};
};

/// Inverse of to_string; throws Error(kInvalidArgument) that lists the names there are.
template <typename Enum>
Enum parse_name(std::string_view name) {
  std::string known;
  for (Enum value : Named<Enum>::kAll) {
    if (to_string(value) == name) return value;
    known += known.empty() ? "" : ", ";
    known += to_string(value);
  }
  throw Error(ErrorCode::kInvalidArgument, "unknown " + std::string(Named<Enum>::kWhat) + " '" +
                                               std::string(name) + "'; known are " + known);
}

}  // namespace agoq
