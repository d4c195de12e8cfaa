// The fp32 sum of all ranks' pieces, fused with what becomes of it.
//
// A thread sums its elements in rank order, whichever pieces are encoded, so that the result is
// that of the CPU to the bit. Pieces are loaded a few at a time, to have several loads in flight.
#pragma once

#include <cstdint>

#include "codec/cuda/arguments.h"
#include "codec/cuda/block_encoder.cuh"
#include "codec/cuda/code_vector.cuh"
#include "codec/cuda/dequantize.cuh"
#include "codec/cuda/element_vector.cuh"
#include "codec/cuda/tiles.cuh"

namespace agoq::cuda {

inline constexpr int kPiecesAtOnce = 4;

/// Thread blocks on a multiprocessor at once. Stated so that ptxas does not spill a few registers
/// in order to fit in more of them.
template <int kVectors>
inline constexpr int kSumBlocks = kVectors == 1 ? 3 : 2;

/// The pieces of one sum, and where a segment, or a row, lies in each.
struct PieceList {
  const std::uint8_t* const* encoded;
  int count;  ///< Of encoded ones.
  int own_rank;
  const void* own;
  DataType own_type;
  ScaleType scale_type;
  std::int64_t code_at;
  std::int64_t scale_at;  ///< Of the vector's scale.
};

/// Adds a vector of all ranks' pieces to `sum`, the owner's in its place among them.
template <class Format, bool kAnywhere = false>
__device__ __forceinline__ void add_pieces(const PieceList& pieces, std::int64_t vector, int live,
                                           float (&sum)[kVector]) {
  float own[kVector] = {};
  if (pieces.own_rank >= 0) load_values(pieces.own_type, pieces.own, vector, live, own);
  const auto add_own = [&] {
#pragma unroll
    for (int j = 0; j < kVector; ++j) sum[j] = add(sum[j], own[j]);
  };
  for (int first = 0; first < pieces.count; first += kPiecesAtOnce) {
    const int left = pieces.count - first;
    const int own_at = pieces.own_rank - first;
    CodeVector<Format> codes[kPiecesAtOnce];
    float scales[kPiecesAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kPiecesAtOnce; ++i) {
      if (i >= left) break;
      const std::uint8_t* piece = pieces.encoded[first + i];
      codes[i] = load_codes<Format, kAnywhere>(piece + pieces.code_at, vector, live);
      scales[i] = load_scale_at(piece + pieces.scale_at, pieces.scale_type);
    }
#pragma unroll
    for (int i = 0; i < kPiecesAtOnce; ++i) {
      if (i >= left) break;
      if (i == own_at) add_own();
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[j] = add(sum[j], dequantize(codes[i], j, scales[i]));
    }
  }
  if (pieces.own_rank == pieces.count) add_own();
}

/// Factor and residual, which may be null; +0 past the end.
__device__ __forceinline__ void finish_sum(float factor, const void* residual,
                                           DataType residual_type, std::int64_t vector, int live,
                                           float (&sum)[kVector]) {
  if (factor != 1.0f) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] = mul(sum[i], factor);
  }
  if (residual != nullptr) {
    float addend[kVector] = {};
    load_values(residual_type, residual, vector, live, addend);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] = add(sum[i], addend[i]);
  }
  // A piece with a NaN scale has made NaN of the elements past the end too.
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum[i] = i < live ? sum[i] : 0.0f;
}

/// What a sum starts from: -0 leaves the first piece as it is, a -0 of the owner's too.
__device__ __forceinline__ void start_sum(float (&sum)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) sum[i] = -0.0f;
}

template <class Format>
__device__ __forceinline__ void sum_vector(const SumArguments& arguments, int segment_index,
                                           std::int64_t vector, int live, float (&sum)[kVector]) {
  const SumSegment& segment = arguments.segments[segment_index];
  const int count = arguments.pieces_a_segment;
  start_sum(sum);
  if (segment.start != nullptr) {
    load_values<DataType::kFloat32>(segment.start, vector, live, sum);
  }
  const PieceList pieces = {
      .encoded = arguments.pieces + segment_index * count,
      .count = count,
      .own_rank = arguments.own_rank,
      .own = segment.own,
      .own_type = arguments.own_type,
      .scale_type = arguments.shape.scale_type,
      .code_at = 0,
      .scale_at = scale_offset_of(segment.scale_offset, vector, arguments.shape),
  };
  add_pieces<Format>(pieces, vector, live, sum);
  finish_sum(arguments.factor, segment.residual, arguments.residual_type, vector, live, sum);
}

template <class Format>
__global__ void __launch_bounds__(kThreads, kSumBlocks<1>)
    sum_decode_kernel(const __grid_constant__ SumArguments arguments) {
  const int segment_index = static_cast<int>(blockIdx.y);
  const SumSegment& segment = arguments.segments[segment_index];
  for (Tiles<1> tile(segment.count); tile.more(); tile.next()) {
    const std::int64_t vector = tile.vector(0);
    const int live = tile.live(vector);
    if (live == 0) continue;
    float sum[kVector];
    sum_vector<Format>(arguments, segment_index, vector, live, sum);
    store_values(arguments.type, segment.values, vector, live, sum);
  }
}

template <class Format, int kVectors, bool kStochastic>
__global__ void __launch_bounds__(kThreads, kSumBlocks<kVectors>)
    sum_encode_kernel(const __grid_constant__ SumArguments arguments) {
  const int segment_index = static_cast<int>(blockIdx.y);
  const SumSegment& segment = arguments.segments[segment_index];
  const EncodedSegment out = {segment.encoded, segment.scale_offset, segment.first_element};
  for (Tiles<kVectors> tile(segment.count); tile.more(); tile.next()) {
    float sum[kVectors][kVector] = {};
#pragma unroll 1
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t vector = tile.vector(i);
      const int live = tile.live(vector);
      float next[kVector] = {};
      if (live > 0) sum_vector<Format>(arguments, segment_index, vector, live, next);
      shift_down(sum, next);
    }
    // What follows may replace a piece, whose scale all lanes of a block have read. Shuffles order
    // no memory.
    __syncwarp();
    encode_tile<Format, kStochastic>(
        tile, sum, arguments.shape, arguments.rounding, out,
        [&](std::int64_t vector, int live, const CodeVector<Format>& codes, float scale) {
          if (segment.values == nullptr) return;
          float decoded[kVector];
#pragma unroll
          for (int i = 0; i < kVector; ++i) decoded[i] = dequantize(codes, i, scale);
          store_values(arguments.type, segment.values, vector, live, decoded);
        });
  }
}

}  // namespace agoq::cuda
