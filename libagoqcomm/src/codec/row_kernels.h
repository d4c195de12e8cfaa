// What an ISA does to one row in fp32. Bit for bit the same function on all: docs/numerics.md.
#pragma once

#include <cstdint>

#include "agoqcomm/codec.h"
#include "codec/kernel_table.h"
#include "codec/row_arithmetic.h"

namespace agoq {

/// Elements of memory for a row of `width`, so that whole lanes can be read.
constexpr std::int64_t padded_row(std::int64_t width) {
  return (width + kSquareLanes - 1) / kSquareLanes * kSquareLanes;
}

/// `x` is a row in fp32, aligned to 64 bytes, with zeros up to padded_row(width). Other memory has
/// `width` elements of any alignment.
struct RowKernels {
  /// Adds the residual, if there is one, and rounds to the type; `out`, if there is one, gets it.
  void (*finish[kEncodableTypes])(float* x, std::int64_t width, const void* residual, void* out);
  float (*sum_of_squares)(const float* x, std::int64_t width);
  /// Times `inverse`, then times `weight`, if there is one; rounded to the type, `out` as above.
  void (*scale[kEncodableTypes])(float* x, std::int64_t width, float inverse, const float* weight,
                                 void* out);
};

// One function a file under cpu/.
const RowKernels* scalar_row_kernels();
const RowKernels* avx2_row_kernels();
const RowKernels* avx512_row_kernels();

}  // namespace agoq
