// Eight elements of a caller's buffer, which may have any alignment, as fp32 and back.
//
// Whole vectors that are aligned to 16 bytes move as such. The others go through a loop that is not
// unrolled, so that the rare case costs few instructions of the kernel.
#pragma once

#include <cstdint>
#include <type_traits>

#include "agoqcomm/types.h"
#include "codec/cuda/arguments.h"
#include "codec/cuda/half_conversion.cuh"
#include "format/float_bits.h"

namespace agoq::cuda {

__device__ __forceinline__ bool is_aligned(const void* address, unsigned bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

/// How an element of a type lies in memory.
template <DataType kType>
using ElementBits = std::conditional_t<kType == DataType::kFloat32, std::uint32_t, std::uint16_t>;

/// A word of memory holds one element of fp32, or two of the others.
template <DataType kType>
inline constexpr int kPerWord = 4 / sizeof(ElementBits<kType>);

template <DataType kType>
__device__ __forceinline__ void widen_word(std::uint32_t word, float* x) {
  if constexpr (kType == DataType::kFloat32) {
    x[0] = from_bits(word);
  } else {
    widen_pair<kType>(word, x[0], x[1]);
  }
}

/// Rounds half to even. A NaN becomes the canonical one here, and nowhere before.
template <DataType kType>
__device__ __forceinline__ std::uint32_t narrow_word(const float* x) {
  if constexpr (kType == DataType::kFloat32) {
    return bits(canonical(x[0]));
  } else {
    return narrow_pair<kType>(x[0], x[1]);
  }
}

/// One element, without a neighbour.
template <DataType kType>
__device__ __forceinline__ float widen(ElementBits<kType> element) {
  float x[2];
  widen_word<kType>(element, x);
  return x[0];
}
template <DataType kType>
__device__ __forceinline__ ElementBits<kType> narrow(float element) {
  const float x[2] = {element, 0.0f};
  return static_cast<ElementBits<kType>>(narrow_word<kType>(x));
}

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
  using Bits = ElementBits<kType>;
  const char* from = static_cast<const char*>(values) + vector * kVector * sizeof(Bits);
  if (live == kVector && is_aligned(from, 16)) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4 * kPerWord<kType>) {
      const uint4 quad = *reinterpret_cast<const uint4*>(from + i * sizeof(Bits));
      const std::uint32_t words[4] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) widen_word<kType>(words[j], x + i + j * kPerWord<kType>);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < kVector; ++i) {
    shift_down(x, i < live ? widen<kType>(load_bits<Bits>(from + i * sizeof(Bits))) : 0.0f);
  }
}

/// Stores the first `live` elements, rounded half to even.
template <DataType kType>
__device__ __forceinline__ void store_values(void* values, std::int64_t vector, int live,
                                             float (&x)[kVector]) {
  using Bits = ElementBits<kType>;
  char* to = static_cast<char*>(values) + vector * kVector * sizeof(Bits);
  if (live == kVector && is_aligned(to, 16)) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4 * kPerWord<kType>) {
      std::uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) words[j] = narrow_word<kType>(x + i + j * kPerWord<kType>);
      *reinterpret_cast<uint4*>(to + i * sizeof(Bits)) =
          make_uint4(words[0], words[1], words[2], words[3]);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < live; ++i) {
    store_bits<Bits>(to + i * sizeof(Bits), narrow<kType>(x[0]));
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
