// What a kernel is given. It travels by value in the launch itself: nothing is copied to the device
// beforehand, and a CUDA graph keeps all of it.
#pragma once

#include <cstdint>

#include "agoqcomm/block_format.h"
#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/types.h"

namespace agoq::cuda {

/// What a launch may carry on every device and driver.
inline constexpr int kMaxArgumentBytes = 4096;

/// Elements that one thread takes at once: 16 bytes of bf16 or fp16.
inline constexpr int kVector = 8;
inline constexpr int kWarp = 32;
inline constexpr int kThreads = 256;

/// A block format, as far as its block length and its scales go.
struct BlockShape {
  int vectors;  ///< Vectors in a block: a power of two.
  int shift;    ///< Its logarithm: vector v lies in block v >> shift.
  ScaleType scale_type;
};

/// Rounding, but for the index of an element.
struct RoundingKey {
  std::uint64_t seed;
  std::uint32_t call;
  std::uint32_t rank;
  std::uint32_t stage;
};

struct EncodeSegment {
  const void* values;
  std::uint8_t* encoded;
  std::int64_t count;
  std::int64_t scale_offset;
  std::int64_t first_element;
};

struct EncodeArguments {
  BlockShape shape;
  RoundingKey rounding;
  DataType type;
  EncodeSegment segments[CudaCodec::kMaxEncodeSegments];
};

/// Of decode and accumulate.
struct DecodeSegment {
  const std::uint8_t* encoded;
  void* values;
  std::int64_t count;
  std::int64_t scale_offset;
};

struct DecodeArguments {
  BlockShape shape;
  DecodeSegment segments[CudaCodec::kMaxEncodeSegments];
};

struct SumSegment {
  const void* own;
  const float* start;
  const void* residual;
  std::uint8_t* encoded;
  void* values;
  std::int64_t count;
  std::int64_t scale_offset;
  std::int64_t first_element;
};

struct SumArguments {
  BlockShape shape;
  RoundingKey rounding;
  float factor;
  int pieces_a_segment;  ///< Encoded ones: the owner's is not among them.
  int own_rank;          ///< Pieces before the owner's; -1: there is none.
  DataType own_type;
  DataType residual_type;
  DataType type;
  SumSegment segments[CudaCodec::kMaxSumSegments];
  /// Piece i of segment s at s * pieces_a_segment + i.
  const std::uint8_t* pieces[CudaCodec::kMaxPieces];
};

/// Rows of sums; rows of elements are sums of an owner's piece and no other.
struct RowArguments {
  BlockShape shape;
  RoundingKey rounding;
  std::int64_t rows;
  std::int64_t first_element;
  std::int64_t row_code_bytes;
  std::int64_t row_scale_bytes;
  std::int64_t scale_offset;  ///< From a piece to the scales of its rows.
  int width;
  float factor;
  float epsilon;
  int pieces_a_row;  ///< As pieces_a_segment.
  int own_rank;      ///< As a sum's.
  DataType own_type;
  DataType type;  ///< Of all other elements but the weight.
  bool has_norm;
  bool is_stochastic;
  const void* own;
  const void* residual;
  void* values;
  const float* weight;
  void* normed;
  std::uint8_t* codes;  ///< Of the first encoded row, as the scales; null where none is encoded.
  std::uint8_t* scales;
  std::uint8_t* gap;  ///< The zero bytes between codes and scales.
  int gap_bytes;
  const std::uint8_t* pieces[CudaCodec::kMaxPieces];
};

static_assert(sizeof(EncodeArguments) <= kMaxArgumentBytes);
static_assert(sizeof(DecodeArguments) <= kMaxArgumentBytes);
static_assert(sizeof(SumArguments) <= kMaxArgumentBytes);
static_assert(sizeof(RowArguments) <= kMaxArgumentBytes);

}  // namespace agoq::cuda
