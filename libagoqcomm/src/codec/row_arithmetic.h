// The numbers of a row's norm that every device computes alike.
#pragma once

#include <cstdint>

#include "format/float_bits.h"

namespace agoq {

/// Squares are summed a run at a time. In a run, number i goes to partial sum i % kSquareLanes, in
/// order, and the partial sums are folded by halves: lane l takes lane l + 128, then l + 64, and so
/// on to l + 1. The sums of the runs are added in order. A row's end is as if zeros followed.
///
/// A GPU's warp takes a run, each thread eight neighbours at a time; a CPU has many sums under way.
inline constexpr std::int64_t kSquareLanes = 256;
inline constexpr std::int64_t kSquareRun = 1024;

/// Correctly rounded.
AGOQ_HD float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// What RMSNorm multiplies a row of `width` numbers by.
AGOQ_HD float inverse_rms(float sum_of_squares, std::int64_t width, float epsilon) {
  const float mean = div(sum_of_squares, static_cast<float>(width));
  return div(1.0f, square_root(add(mean, epsilon)));
}

}  // namespace agoq
