// From fp32 elements in the registers of a warp to encoded blocks.
#pragma once

#include <cstdint>

#include "codec/cuda/arguments.h"
#include "codec/cuda/code_vector.cuh"
#include "codec/cuda/quantize.cuh"
#include "codec/cuda/tiles.cuh"
#include "format/scale.h"

namespace agoq::cuda {

/// The largest magnitude of the block that the calling lane's vectors are in, the same in all lanes
/// of a block.
template <int kVectors>
__device__ __forceinline__ std::uint32_t block_absmax(const float (&x)[kVectors][kVector],
                                                      int block_vectors) {
  std::uint32_t absmax = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) absmax = max(absmax, abs_bits(x[v][i]));
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    // The same decision in every lane of the launch.
    if (kVectors > 1 || distance < block_vectors) {
      absmax = max(absmax, __shfl_xor_sync(0xffffffffu, absmax, distance));
    }
  }
  return absmax;
}

/// Where an encoding goes.
struct EncodedSegment {
  std::uint8_t* encoded;
  std::int64_t scale_offset;
  std::int64_t first_element;
};

/// Encodes the blocks of a warp's tile. All lanes must call it, and lose `x`. Calls
/// `written(vector, live, codes, scale)` for each of the lane's vectors that is not past the end.
template <class Format, bool kStochastic, int kVectors, class Written>
__device__ __forceinline__ void encode_tile(const Tiles<kVectors>& tile,
                                            float (&x)[kVectors][kVector], const BlockShape& shape,
                                            const RoundingKey& key, const EncodedSegment& out,
                                            Written written) {
  const std::uint32_t absmax = block_absmax<kVectors>(x, shape.vectors);
  const BlockScale scale = make_scale(absmax, Format::kMax, shape.scale_type);
#pragma unroll 1
  for (int i = 0; i < kVectors; ++i) {
    const std::int64_t vector = tile.vector(i);
    const int live = tile.live(vector);
    if (live == 0) break;
    const CodeVector<Format> codes = quantize<Format, kStochastic>(
        x[0], scale.inverse, key, static_cast<std::uint64_t>(out.first_element + vector * kVector));
    store_codes(codes, out.encoded, vector, live);
    if (tile.is_last(vector)) store_padding<Format>(out.encoded, vector, live, out.scale_offset);
    if ((vector & (shape.vectors - 1)) == 0) {
      store_scale_of(out.encoded, out.scale_offset, vector, shape, scale.scale);
    }
    written(vector, live, codes, scale.scale);
    const float nothing[kVector] = {};
    shift_down(x, nothing);
  }
}

}  // namespace agoq::cuda
