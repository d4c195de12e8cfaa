// Encoded bytes to elements.
#pragma once

#include "codec/cuda/arguments.h"
#include "codec/cuda/code_vector.cuh"
#include "codec/cuda/dequantize.cuh"
#include "codec/cuda/element_vector.cuh"
#include "codec/cuda/tiles.cuh"

namespace agoq::cuda {

template <class Format, DataType kType>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const __grid_constant__ DecodeArguments arguments) {
  const DecodeSegment& segment = arguments.segments[blockIdx.y];
  const BlockShape& shape = arguments.shape;
  for (Tiles<1> tile(segment.count); tile.more(); tile.next()) {
    const std::int64_t vector = tile.vector(0);
    const int live = tile.live(vector);
    if (live == 0) continue;
    const CodeVector<Format> codes = load_codes<Format>(segment.encoded, vector, live);
    const float scale = load_scale_at(
        segment.encoded + scale_offset_of(segment.scale_offset, vector, shape), shape.scale_type);
    float x[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = dequantize(codes, i, scale);
    store_values<kType>(segment.values, vector, live, x);
  }
}

}  // namespace agoq::cuda
