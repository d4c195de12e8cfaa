// Elements of a caller's buffer, which may have any alignment, as fp32 and back.
#pragma once

#include <cstdint>

#include "agoqcomm/types.h"
#include "format/float_bits.h"
#include "format/half.h"

namespace agoq {

template <DataType kType>
AGOQ_HD float load_value(const void* values, std::int64_t i) {
  if constexpr (kType == DataType::kFloat32) {
    float x;
    __builtin_memcpy(&x, static_cast<const char*>(values) + 4 * i, 4);
    return x;
  } else {
    std::uint16_t h;
    __builtin_memcpy(&h, static_cast<const char*>(values) + 2 * i, 2);
    return kType == DataType::kBfloat16 ? bfloat16_to_float(h) : float16_to_float(h);
  }
}

/// Rounds half to even.
template <DataType kType>
AGOQ_HD void store_value(void* values, std::int64_t i, float x) {
  if constexpr (kType == DataType::kFloat32) {
    __builtin_memcpy(static_cast<char*>(values) + 4 * i, &x, 4);
  } else {
    const std::uint16_t h =
        kType == DataType::kBfloat16 ? float_to_bfloat16(x) : float_to_float16(x);
    __builtin_memcpy(static_cast<char*>(values) + 2 * i, &h, 2);
  }
}

/// The same with a type known at run time, which must be one that the codec encodes.
AGOQ_HD float load_value(DataType type, const void* values, std::int64_t i) {
  switch (type) {
    case DataType::kBfloat16:
      return load_value<DataType::kBfloat16>(values, i);
    case DataType::kFloat16:
      return load_value<DataType::kFloat16>(values, i);
    default:
      return load_value<DataType::kFloat32>(values, i);
  }
}
AGOQ_HD void store_value(DataType type, void* values, std::int64_t i, float x) {
  switch (type) {
    case DataType::kBfloat16:
      return store_value<DataType::kBfloat16>(values, i, x);
    case DataType::kFloat16:
      return store_value<DataType::kFloat16>(values, i, x);
    default:
      return store_value<DataType::kFloat32>(values, i, x);
  }
}

}  // namespace agoq
