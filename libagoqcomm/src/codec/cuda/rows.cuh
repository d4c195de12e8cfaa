// Rows, a warp each: sum and residual, then the norm, then encoding.
//
// A norm needs the whole row. So the first pass sums, stores the finished row and sums its squares
// as row_arithmetic.h says; the second reads the row again, from cache, scales and encodes it. What
// needs no norm takes the second pass alone. Vector v is lane v % kWarp's in both: every thread
// reads only what it has stored itself.
#pragma once

#include <cstdint>

#include "codec/cuda/arguments.h"
#include "codec/cuda/block_encoder.cuh"
#include "codec/cuda/code_vector.cuh"
#include "codec/cuda/element_vector.cuh"
#include "codec/cuda/sum.cuh"
#include "codec/cuda/tiles.cuh"
#include "codec/row_arithmetic.h"

namespace agoq::cuda {

static_assert(kSquareLanes == kWarp * kVector, "a run's partial sums are the vectors of a warp");
inline constexpr int kRunVectors = static_cast<int>(kSquareRun) / kVector;

/// Vectors a lane has of the longest block.
inline constexpr int kMostVectors = 4;

/// A row of the calling warp.
struct Row {
  std::int64_t index;
  std::int64_t first;  ///< Element of all rows.
  int width;

  __device__ __forceinline__ int vectors() const { return (width + kVector - 1) / kVector; }
  /// How many elements of a vector there are; 0 past the end.
  __device__ __forceinline__ int live(int vector) const {
    const int rest = width - vector * kVector;
    return rest >= kVector ? kVector : max(rest, 0);
  }
  /// Where it begins among elements of a type.
  __device__ __forceinline__ char* begin(const void* all, DataType type) const {
    const char* bytes = static_cast<const char*>(all);
    return const_cast<char*>(bytes + (first << (type == DataType::kFloat32 ? 2 : 1)));
  }
};

/// To what reading it from memory of the type gives.
template <DataType kType>
__device__ __forceinline__ void round_to(float (&x)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; i += kPerWord<kType>) {
    widen_word<kType>(narrow_word<kType>(x + i), x + i);
  }
}
__device__ __forceinline__ void round_to(DataType type, float (&x)[kVector]) {
  if (type == DataType::kFloat32) {
    round_to<DataType::kFloat32>(x);
  } else if (type == DataType::kBfloat16) {
    round_to<DataType::kBfloat16>(x);
  } else {
    round_to<DataType::kFloat16>(x);
  }
}

/// store_values(), which loses what it stores, of a copy.
__device__ __forceinline__ void store_copy(const RowArguments& a, const Row& row, void* values,
                                           int vector, int live, const float (&x)[kVector]) {
  float copy[kVector];
#pragma unroll
  for (int i = 0; i < kVector; ++i) copy[i] = x[i];
  store_values(a.type, row.begin(values, a.type), vector, live, copy);
}

/// Sum, factor and residual of a vector, rounded to the type, and stored where rows are wanted.
template <class Format>
__device__ __forceinline__ void sum_row_vector(const RowArguments& a, const Row& row, int vector,
                                               int live, float (&sum)[kVector]) {
  const std::int64_t scales = a.scale_offset + row.index * a.row_scale_bytes;
  const PieceList pieces = {
      .encoded = a.pieces,
      .count = a.pieces_a_row,
      .own_rank = a.own_rank,
      .own = row.begin(a.own, a.own_type),
      .own_type = a.own_type,
      .scale_type = a.shape.scale_type,
      .code_at = row.index * a.row_code_bytes,
      .scale_at = scale_offset_of(scales, vector, a.shape),
  };
  start_sum(sum);
  add_pieces<Format, true>(pieces, vector, live, sum);
  const void* residual = a.residual == nullptr ? nullptr : row.begin(a.residual, a.type);
  finish_sum(a.factor, residual, a.type, vector, live, sum);
  round_to(a.type, sum);
  if (a.values != nullptr) store_copy(a, row, a.values, vector, live, sum);
}

/// The sum of a run's squares, in every lane, from each lane's eight partial sums.
__device__ __forceinline__ float fold_squares(float (&squares)[kVector]) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      squares[i] = add(squares[i], __shfl_xor_sync(0xffffffffu, squares[i], distance));
    }
  }
#pragma unroll
  for (int half = kVector / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) squares[i] = add(squares[i], squares[i + half]);
  }
  return squares[0];
}

/// The first pass: returns what the norm multiplies the row by.
template <class Format>
__device__ __forceinline__ float sum_row(const RowArguments& a, const Row& row) {
  float total = 0.0f;
#pragma unroll 1
  for (int run = 0; run < row.vectors(); run += kRunVectors) {
    float squares[kVector] = {};
#pragma unroll 1
    for (int vector = run + lane(); vector < run + kRunVectors; vector += kWarp) {
      const int live = row.live(vector);
      if (live == 0) continue;
      float x[kVector];
      sum_row_vector<Format>(a, row, vector, live, x);
#pragma unroll
      for (int i = 0; i < kVector; ++i) squares[i] = add(squares[i], mul(x[i], x[i]));
    }
    total = add(total, fold_squares(squares));
  }
  return inverse_rms(total, row.width, a.epsilon);
}

/// Norms a vector of the finished row; +0 past the end.
__device__ __forceinline__ void norm_vector(const RowArguments& a, const Row& row, int vector,
                                            int live, float inverse, float (&x)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = mul(x[i], inverse);
  if (a.weight != nullptr) {
    float weight[kVector] = {};
    load_values<DataType::kFloat32>(a.weight, vector, live, weight);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = mul(x[i], weight[i]);
  }
  round_to(a.type, x);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = i < live ? x[i] : 0.0f;
  if (a.normed != nullptr) store_copy(a, row, a.normed, vector, live, x);
}

/// Encodes the blocks of the vectors from `first` on, one for each of a lane's. Loses `x`.
template <class Format, int kVectors>
__device__ __forceinline__ void encode_row_tile(const RowArguments& a, const Row& row, int first,
                                                float (&x)[kVectors][kVector]) {
  const std::uint32_t absmax = block_absmax<kVectors>(x, a.shape.vectors);
  const BlockScale scale = make_scale(absmax, Format::kMax, a.shape.scale_type);
  std::uint8_t* codes = a.codes + row.index * a.row_code_bytes;
  std::uint8_t* scales = a.scales + row.index * a.row_scale_bytes;
#pragma unroll 1
  for (int i = 0; i < kVectors; ++i) {
    const int vector = first + i * kWarp + lane();
    const int live = row.live(vector);
    // The second half of the registers, where a block has but two vectors a lane, is empty.
    if (live == 0 || i * kWarp >= max(a.shape.vectors, kWarp)) break;
    const auto index =
        static_cast<std::uint64_t>(a.first_element + row.first + std::int64_t{vector} * kVector);
    const CodeVector<Format> encoded =
        a.is_stochastic ? quantize<Format, true>(x[0], scale.inverse, a.rounding, index)
                        : quantize<Format, false>(x[0], scale.inverse, a.rounding, index);
    store_codes<Format, true>(encoded, codes, vector, live);
    if ((vector & (a.shape.vectors - 1)) == 0) {
      store_scale_of(scales, 0, vector, a.shape, scale.scale);
    }
    const float nothing[kVector] = {};
    shift_down(x, nothing);
  }
}

/// The second pass. `inverse` is the first one's result, if there was one.
template <class Format, int kVectors>
__device__ __forceinline__ void finish_row(const RowArguments& a, const Row& row, float inverse) {
  const int in_block = kVectors == 1 ? 1 : a.shape.vectors / kWarp;  // Of a lane's vectors.
  const bool is_stored = a.has_norm && a.values != nullptr;
#pragma unroll 1
  for (int first = 0; first < row.vectors(); first += kWarp * in_block) {
    float tile[kVectors][kVector] = {};
#pragma unroll 1
    for (int i = 0; i < kVectors; ++i) {
      const int vector = first + i * kWarp + lane();
      const int live = i < in_block ? row.live(vector) : 0;
      float x[kVector] = {};
      if (live > 0) {
        if (is_stored) {
          load_values(a.type, row.begin(a.values, a.type), vector, live, x);
        } else {
          sum_row_vector<Format>(a, row, vector, live, x);
        }
        if (a.has_norm) norm_vector(a, row, vector, live, inverse, x);
      }
      shift_down(tile, x);
    }
    if (a.codes != nullptr) encode_row_tile<Format, kVectors>(a, row, first, tile);
  }
}

/// Thread blocks on a multiprocessor at once, as kSumBlocks.
template <int kVectors>
inline constexpr int kRowBlocks = kVectors == 1 ? 3 : 2;

/// `kVectors` is 1, or kMostVectors where a lane has several of a block's.
template <class Format, int kVectors>
__global__ void __launch_bounds__(kThreads, kRowBlocks<kVectors>)
    row_kernel(const __grid_constant__ RowArguments arguments) {
  constexpr int kWarps = kThreads / kWarp;
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < arguments.gap_bytes) {
    arguments.gap[threadIdx.x] = 0;
  }
#pragma unroll 1
  for (std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
       index < arguments.rows; index += std::int64_t{gridDim.x} * kWarps) {
    const Row row = {index, index * arguments.width, arguments.width};
    const float inverse = arguments.has_norm ? sum_row<Format>(arguments, row) : 1.0f;
    finish_row<Format, kVectors>(arguments, row, inverse);
  }
}

}  // namespace agoq::cuda
