// bf16 and fp16 to and from fp32 by the processor's own instructions: what format/half.h computes,
// bit for bit, in one instruction for the twenty of its integer code.
//
// They are correctly rounded, subnormals included. Only the NaN that they make differs (0x7fff), so
// that is chosen here. Host builds of this file use the integer code, and the tests of nvcc's PTX
// compare the two.
#pragma once

#include <cstdint>

#include "format/half.h"

namespace agoq::cuda {

#if defined(__CUDA_ARCH__)

__device__ __forceinline__ float widen_float16(std::uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}

__device__ __forceinline__ std::uint16_t narrow_to_float16(float x) {
  std::uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return is_nan(x) ? kFloat16Nan : h;
}

__device__ __forceinline__ std::uint16_t narrow_to_bfloat16(float x) {
  std::uint16_t h;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return is_nan(x) ? kBfloat16Nan : h;
}

#else

inline float widen_float16(std::uint16_t h) { return float16_to_float(h); }
inline std::uint16_t narrow_to_float16(float x) { return float_to_float16(x); }
inline std::uint16_t narrow_to_bfloat16(float x) { return float_to_bfloat16(x); }

#endif

}  // namespace agoq::cuda
