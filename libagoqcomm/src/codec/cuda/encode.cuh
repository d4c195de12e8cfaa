// Elements to encoded bytes.
#pragma once

#include "codec/cuda/arguments.h"
#include "codec/cuda/block_encoder.cuh"
#include "codec/cuda/element_vector.cuh"
#include "codec/cuda/tiles.cuh"

namespace agoq::cuda {

template <class Format, DataType kType, int kVectors, bool kStochastic>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(const __grid_constant__ EncodeArguments arguments) {
  const EncodeSegment& segment = arguments.segments[blockIdx.y];
  const EncodedSegment out = {segment.encoded, segment.scale_offset, segment.first_element};
  for (Tiles<kVectors> tile(segment.count); tile.more(); tile.next()) {
    float x[kVectors][kVector];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t vector = tile.vector(i);
      load_values<kType>(segment.values, vector, tile.live(vector), x[i]);
    }
    encode_tile<Format, kStochastic>(
        tile, x, arguments.shape, arguments.rounding, out,
        [](int, std::int64_t, int, const CodeVector<Format>&, float) {});
  }
}

}  // namespace agoq::cuda
