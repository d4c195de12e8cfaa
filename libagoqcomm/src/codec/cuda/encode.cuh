// Elements to encoded bytes.
#pragma once

#include "codec/cuda/arguments.h"
#include "codec/cuda/block_encoder.cuh"
#include "codec/cuda/element_vector.cuh"
#include "codec/cuda/tiles.cuh"

namespace agoq::cuda {

/// The element type is an argument of the kernel, not of its template: where elements take more
/// instructions than finding out, and there would be too many instances.
inline constexpr DataType kAnyType = DataType::kOther;

/// Thread blocks on a multiprocessor at once, as kSumBlocks.
template <int kVectors, bool kStochastic>
inline constexpr int kEncodeBlocks = kStochastic || kVectors > 1 ? (kVectors == 4 ? 3 : 4) : 8;

template <class Format, DataType kType, int kVectors, bool kStochastic>
__global__ void __launch_bounds__(kThreads, kEncodeBlocks<kVectors, kStochastic>)
    encode_kernel(const __grid_constant__ EncodeArguments arguments) {
  const EncodeSegment& segment = arguments.segments[blockIdx.y];
  const EncodedSegment out = {segment.encoded, segment.scale_offset, segment.first_element};
  for (Tiles<kVectors> tile(segment.count); tile.more(); tile.next()) {
    float x[kVectors][kVector] = {};
#pragma unroll 1
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t vector = tile.vector(i);
      float next[kVector] = {};
      if constexpr (kType == kAnyType) {
        load_values(arguments.type, segment.values, vector, tile.live(vector), next);
      } else {
        load_values<kType>(segment.values, vector, tile.live(vector), next);
      }
      shift_down(x, next);
    }
    encode_tile<Format, kStochastic>(tile, x, arguments.shape, arguments.rounding, out,
                                     [](std::int64_t, int, const CodeVector<Format>&, float) {});
  }
}

}  // namespace agoq::cuda
