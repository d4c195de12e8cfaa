// bf16 and fp16 to and from fp32 by the processor's own instructions: what format/half.h computes,
// bit for bit, in one instruction for the twenty of its integer code.
//
// They are correctly rounded, subnormals included. Only the NaN that they make differs: it is
// 0x7fff, above every other pattern as a signed number, so that a minimum puts the canonical one in
// its place. Host builds of this file use the integer code, and the tests of nvcc's PTX compare the
// two.
#pragma once

#include <cstdint>

#include "agoqcomm/types.h"
#include "format/half.h"

namespace agoq::cuda {

/// Two elements of a 16-bit type, the first in the lower half, as fp32.
template <DataType kType>
__device__ __forceinline__ void widen_pair(std::uint32_t pair, float& first, float& second) {
  if constexpr (kType == DataType::kBfloat16) {
    first = from_bits(pair << 16);
    second = from_bits(pair & 0xffff0000u);
  } else {
#if defined(__CUDA_ARCH__)
    asm("cvt.f32.f16 %0, %1;" : "=f"(first) : "h"(static_cast<std::uint16_t>(pair)));
    asm("cvt.f32.f16 %0, %1;" : "=f"(second) : "h"(static_cast<std::uint16_t>(pair >> 16)));
#else
    first = float16_to_float(static_cast<std::uint16_t>(pair));
    second = float16_to_float(static_cast<std::uint16_t>(pair >> 16));
#endif
  }
}

/// The lesser of two 16-bit signed numbers, in both halves.
__device__ __forceinline__ std::uint32_t min_of_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  std::uint32_t lesser;
  asm("min.s16x2 %0, %1, %2;" : "=r"(lesser) : "r"(a), "r"(b));
  return lesser;
#else
  const auto lower = [](std::uint32_t x) { return static_cast<std::int16_t>(x); };
  const auto upper = [](std::uint32_t x) { return static_cast<std::int16_t>(x >> 16); };
  const std::int16_t low = lower(a) < lower(b) ? lower(a) : lower(b);
  const std::int16_t high = upper(a) < upper(b) ? upper(a) : upper(b);
  return static_cast<std::uint16_t>(low) | static_cast<std::uint32_t>(high) << 16;
#endif
}

/// The inverse: rounds half to even, and makes every NaN the canonical one.
template <DataType kType>
__device__ __forceinline__ std::uint32_t narrow_pair(float first, float second) {
#if defined(__CUDA_ARCH__)
  std::uint32_t pair;
  if constexpr (kType == DataType::kBfloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return min_of_halves(pair, kBfloat16Nan * 0x10001u);
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return min_of_halves(pair, kFloat16Nan * 0x10001u);
  }
#else
  const auto narrow = [](float x) -> std::uint32_t {
    return kType == DataType::kBfloat16 ? float_to_bfloat16(x) : float_to_float16(x);
  };
  return narrow(first) | narrow(second) << 16;
#endif
}

}  // namespace agoq::cuda
