// From fp32 elements in the registers of a warp to encoded blocks.
#pragma once

#include <cstdint>

#include "codec/cuda/arguments.h"
#include "codec/cuda/code_vector.cuh"
#include "codec/cuda/tiles.cuh"
#include "format/philox.h"
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

/// The numbers in [0, 1) of the eight elements from `first` on.
__device__ __forceinline__ void draw_uniforms(const RoundingKey& key, std::uint64_t first,
                                              float (&uniform)[kVector]) {
  const unsigned skipped = first % 4;
  std::uint32_t words[kVector + 4] = {};
#pragma unroll
  for (int quad = 0; quad < kVector / 4 + 1; ++quad) {
    if (quad == kVector / 4 && skipped == 0) break;
    const PhiloxBlock drawn =
        rounding_words(key.seed, first / 4 + quad, key.call, key.rank, key.stage);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[4 * quad + i] = drawn.word[i];
  }
  // Chosen rather than indexed, to stay in registers.
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const std::uint32_t word = skipped == 0   ? words[i]
                               : skipped == 1 ? words[i + 1]
                               : skipped == 2 ? words[i + 2]
                                              : words[i + 3];
    uniform[i] = to_uniform(word);
  }
}

template <class Format, bool kStochastic>
__device__ __forceinline__ CodeVector<Format> quantize(const float (&x)[kVector], float inverse,
                                                       const RoundingKey& key,
                                                       std::uint64_t first_element) {
  float uniform[kVector] = {};
  if constexpr (kStochastic) draw_uniforms(key, first_element, uniform);
  const auto code_of = [&](int i) {
    if constexpr (kStochastic) {
      return Format::encode_stochastic(x[i], inverse, uniform[i]);
    } else {
      return Format::encode(x[i], inverse);
    }
  };
  CodeVector<Format> codes;
  if (inverse == 0.0f) return codes;  // and perhaps a NaN in x, which has no code
  if constexpr (Format::kBits == 8) {
    // As words: bytes of a register are dear to insert one by one.
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
      std::uint32_t word = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        word |= (static_cast<std::uint32_t>(code_of(i + j)) & 0xffu) << (8 * j);
      }
      __builtin_memcpy(codes.byte + i, &word, 4);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) Format::put(codes.byte, i, code_of(i));
  }
  return codes;
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
