// Reductions of unencoded pieces, in rank order, for every element type and every operation that it
// has.
//
//   fp32, bf16, fp16   in fp32, rounded once; premul_sum too; min and max pass a NaN on
//   fp64               the same in fp64
//   integers           modulo 2^bits; avg divides the sum, towards zero; bitwise operations too
//   bool               sum and max are "or", product and min are "and"; bitwise operations too
//   complex            sum, avg and product
#pragma once

#include <cstdint>
#include <span>

#include "agoqcomm/types.h"

namespace agoq {

/// Throws Error(kInvalidArgument) that says what can be done where `type` has no such reduction.
void check_reducible(DataType type, ReduceOp op);

/// out[i] = op over pieces[r][i] in the order of r. `out` may be one of the pieces. Buffers of any
/// alignment; type and op as check_reducible() accepts them. `factor` is for kPremulSum, and kAvg
/// divides by `ranks`, since pieces may themselves be sums.
void exact_reduce(std::span<const void* const> pieces, std::int64_t count, DataType type,
                  ReduceOp op, float factor, int ranks, void* out);

}  // namespace agoq
