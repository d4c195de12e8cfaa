// Single precision as bits, and the single operations that all codec arithmetic is made of.
//
// Host and device share every definition under src/format, so that CPU and GPU give the same bytes.
// The rules that make it so: only correctly rounded single operations, no a*b+c in one expression,
// no library functions, magnitudes compared as unsigned bits.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define AGOQ_HD __host__ __device__ __forceinline__
#else
// Always inlined: a file compiled for AVX-512 must not leave behind a weak copy that the linker
// might choose for everyone.
#define AGOQ_HD inline __attribute__((always_inline))
#endif

namespace agoq {

AGOQ_HD constexpr std::uint32_t bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
AGOQ_HD constexpr float from_bits(std::uint32_t u) { return __builtin_bit_cast(float, u); }

inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;
/// The only NaN that is ever written: processors disagree on the payloads of those they make.
inline constexpr std::uint32_t kCanonicalNanBits = 0x7fc00000u;

/// Ordered as |x|; every NaN lies above infinity.
AGOQ_HD constexpr std::uint32_t abs_bits(float x) { return bits(x) & ~kSignBit; }
AGOQ_HD constexpr bool is_nan(float x) { return abs_bits(x) > kInfinityBits; }
AGOQ_HD constexpr float canonical(float x) { return is_nan(x) ? from_bits(kCanonicalNanBits) : x; }

// The device intrinsics are immune to nvcc's fma contraction; the host is built with
// -ffp-contract=off.
#if defined(__CUDA_ARCH__)
AGOQ_HD float mul(float a, float b) { return __fmul_rn(a, b); }
AGOQ_HD float add(float a, float b) { return __fadd_rn(a, b); }
AGOQ_HD float div(float a, float b) { return __fdiv_rn(a, b); }
#else
AGOQ_HD float mul(float a, float b) { return a * b; }
AGOQ_HD float add(float a, float b) { return a + b; }
AGOQ_HD float div(float a, float b) { return a / b; }
#endif

}  // namespace agoq
