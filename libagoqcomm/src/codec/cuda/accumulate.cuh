// Encoded bytes added to an fp32 accumulator.
#pragma once

#include "codec/cuda/arguments.h"
#include "codec/cuda/code_vector.cuh"
#include "codec/cuda/dequantize.cuh"
#include "codec/cuda/element_vector.cuh"
#include "codec/cuda/tiles.cuh"

namespace agoq::cuda {

template <class Format>
__global__ void __launch_bounds__(kThreads)
    accumulate_kernel(const __grid_constant__ DecodeArguments arguments) {
  const DecodeSegment& segment = arguments.segments[blockIdx.y];
  const BlockShape& shape = arguments.shape;
  for (Tiles<1> tile(segment.count); tile.more(); tile.next()) {
    const std::int64_t vector = tile.vector(0);
    const int live = tile.live(vector);
    if (live == 0) continue;
    const CodeVector<Format> codes = load_codes<Format>(segment.encoded, vector, live);
    const float scale = load_scale_at(
        segment.encoded + scale_offset_of(segment.scale_offset, vector, shape), shape.scale_type);
    float sum[kVector] = {};
    load_values<DataType::kFloat32>(segment.values, vector, live, sum);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] = add(sum[i], dequantize(codes, i, scale));
    store_values<DataType::kFloat32>(segment.values, vector, live, sum);
  }
}

}  // namespace agoq::cuda
