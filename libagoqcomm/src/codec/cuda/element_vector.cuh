// Eight elements of a caller's buffer, which may have any alignment, as fp32 and back.
//
// Whole vectors that are aligned to 16 bytes move as such. The others go element by element, or byte
// by byte where not even elements are aligned.
#pragma once

#include <cstdint>

#include "agoqcomm/types.h"
#include "codec/cuda/arguments.h"
#include "codec/values.h"
#include "format/half.h"

namespace agoq::cuda {

__device__ __forceinline__ bool is_aligned(const void* address, unsigned bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

template <DataType kType>
struct Element {
  using Bits = std::uint16_t;
  static __device__ __forceinline__ float widen(Bits bits) {
    return kType == DataType::kBfloat16 ? bfloat16_to_float(bits) : float16_to_float(bits);
  }
  static __device__ __forceinline__ Bits narrow(float x) {
    return kType == DataType::kBfloat16 ? float_to_bfloat16(x) : float_to_float16(x);
  }
};

template <>
struct Element<DataType::kFloat32> {
  using Bits = std::uint32_t;
  static __device__ __forceinline__ float widen(Bits bits) { return from_bits(bits); }
  static __device__ __forceinline__ Bits narrow(float x) { return bits(x); }
};

/// Elements past `live` become +0.
template <DataType kType>
__device__ __forceinline__ void load_values(const void* values, std::int64_t vector, int live,
                                            float (&x)[kVector]) {
  using Bits = typename Element<kType>::Bits;
  constexpr int kPerWord = 4 / sizeof(Bits);
  const char* from = static_cast<const char*>(values) + vector * kVector * sizeof(Bits);
  if (live == kVector && is_aligned(from, 16)) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4 * kPerWord) {
      const uint4 quad = *reinterpret_cast<const uint4*>(from + i * sizeof(Bits));
      const std::uint32_t words[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
      for (int j = 0; j < 4 * kPerWord; ++j) {
        const std::uint32_t word = words[j / kPerWord];
        x[i + j] = Element<kType>::widen(static_cast<Bits>(j % kPerWord == 0 ? word : word >> 16));
      }
    }
  } else if (is_aligned(from, sizeof(Bits))) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      x[i] = i < live ? Element<kType>::widen(reinterpret_cast<const Bits*>(from)[i]) : 0.0f;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = i < live ? load_value<kType>(from, i) : 0.0f;
  }
}

/// Stores the first `live` elements, rounded half to even.
template <DataType kType>
__device__ __forceinline__ void store_values(void* values, std::int64_t vector, int live,
                                             const float (&x)[kVector]) {
  using Bits = typename Element<kType>::Bits;
  constexpr int kPerWord = 4 / sizeof(Bits);
  char* to = static_cast<char*>(values) + vector * kVector * sizeof(Bits);
  if (live == kVector && is_aligned(to, 16)) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4 * kPerWord) {
      std::uint32_t words[4] = {};
#pragma unroll
      for (int j = 0; j < 4 * kPerWord; ++j) {
        const std::uint32_t narrow = Element<kType>::narrow(x[i + j]);
        words[j / kPerWord] |= j % kPerWord == 0 ? narrow : narrow << 16;
      }
      *reinterpret_cast<uint4*>(to + i * sizeof(Bits)) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
  } else if (is_aligned(to, sizeof(Bits))) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < live) reinterpret_cast<Bits*>(to)[i] = Element<kType>::narrow(x[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (i < live) store_value<kType>(to, i, x[i]);
    }
  }
}

// The same for a type known at run time.

__device__ __forceinline__ void load_values(DataType type, const void* values, std::int64_t vector,
                                            int live, float (&x)[kVector]) {
  if (type == DataType::kFloat32) {
    load_values<DataType::kFloat32>(values, vector, live, x);
  } else if (type == DataType::kBfloat16) {
    load_values<DataType::kBfloat16>(values, vector, live, x);
  } else {
    load_values<DataType::kFloat16>(values, vector, live, x);
  }
}

__device__ __forceinline__ void store_values(DataType type, void* values, std::int64_t vector,
                                             int live, const float (&x)[kVector]) {
  if (type == DataType::kFloat32) {
    store_values<DataType::kFloat32>(values, vector, live, x);
  } else if (type == DataType::kBfloat16) {
    store_values<DataType::kBfloat16>(values, vector, live, x);
  } else {
    store_values<DataType::kFloat16>(values, vector, live, x);
  }
}

}  // namespace agoq::cuda
