// Eight elements of a caller's buffer, which may have any alignment, as fp32 and back.
//
// Whole vectors that are aligned to 16 bytes move as such. The others go through a loop that is not
// unrolled, so that the rare case costs few instructions of the kernel.
#pragma once

#include <cstdint>

#include "agoqcomm/types.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/half_conversion.cuh"
#include "codec/values.h"

namespace agoq::cuda {

__device__ __forceinline__ bool is_aligned(const void* address, unsigned bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

template <DataType kType>
struct Element {
  using Bits = std::uint16_t;
  static __device__ __forceinline__ float widen(Bits bits) {
    return kType == DataType::kBfloat16 ? bfloat16_to_float(bits) : widen_float16(bits);
  }
  static __device__ __forceinline__ Bits narrow(float x) {
    return kType == DataType::kBfloat16 ? narrow_to_bfloat16(x) : narrow_to_float16(x);
  }
};

template <>
struct Element<DataType::kFloat32> {
  using Bits = std::uint32_t;
  static __device__ __forceinline__ float widen(Bits bits) { return from_bits(bits); }
  static __device__ __forceinline__ Bits narrow(float x) { return bits(x); }
};

/// An element of any alignment.
template <class Bits>
__device__ __forceinline__ Bits load_bits(const char* from) {
  if (is_aligned(from, sizeof(Bits))) return *reinterpret_cast<const Bits*>(from);
  Bits bits;
  __builtin_memcpy(&bits, from, sizeof(Bits));
  return bits;
}
template <class Bits>
__device__ __forceinline__ void store_bits(char* to, Bits bits) {
  if (is_aligned(to, sizeof(Bits))) {
    *reinterpret_cast<Bits*>(to) = bits;
  } else {
    __builtin_memcpy(to, &bits, sizeof(Bits));
  }
}

/// Makes room at the end: registers cannot be indexed by the counter of a loop.
__device__ __forceinline__ void shift_down(float (&x)[kVector], float last) {
#pragma unroll
  for (int i = 0; i + 1 < kVector; ++i) x[i] = x[i + 1];
  x[kVector - 1] = last;
}

/// The same for vectors.
template <int kVectors>
__device__ __forceinline__ void shift_down(float (&x)[kVectors][kVector],
                                           const float (&last)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) x[i][j] = i + 1 < kVectors ? x[i + 1][j] : last[j];
  }
}

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
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kVector; ++i) {
    shift_down(x,
               i < live ? Element<kType>::widen(load_bits<Bits>(from + i * sizeof(Bits))) : 0.0f);
  }
}

/// Stores the first `live` elements, rounded half to even.
template <DataType kType>
__device__ __forceinline__ void store_values(void* values, std::int64_t vector, int live,
                                             float (&x)[kVector]) {
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
    return;
  }
#pragma unroll 1
  for (int i = 0; i < live; ++i) {
    store_bits<Bits>(to + i * sizeof(Bits), Element<kType>::narrow(x[0]));
    shift_down(x, 0.0f);
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
                                             int live, float (&x)[kVector]) {
  if (type == DataType::kFloat32) {
    store_values<DataType::kFloat32>(values, vector, live, x);
  } else if (type == DataType::kBfloat16) {
    store_values<DataType::kBfloat16>(values, vector, live, x);
  } else {
    store_values<DataType::kFloat16>(values, vector, live, x);
  }
}

}  // namespace agoq::cuda
