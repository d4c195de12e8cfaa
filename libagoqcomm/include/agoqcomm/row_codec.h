// The codec on matrices whose blocks run along the rows and end with them, and what a transformer
// does to such rows between two collectives, done while a row is in cache. docs/numerics.md states
// the arithmetic, which is the same to the bit on every ISA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "agoqcomm/export.h"
#include "agoqcomm/types.h"

namespace agoq {

struct RowKernels;

/// A contiguous matrix.
struct RowShape {
  std::int64_t rows = 0;
  std::int64_t width = 0;  ///< Elements of a row.
};

/// Layout of encoded rows, each of which starts with a block of its own and ends with a short one
/// where the block does not divide the width:
///
///   codes of all rows, each from a whole byte on | 0..3 zero bytes | scales of all rows
///
/// Where the block divides the width these are the bytes of WireLayout.
class AGOQ_API RowLayout {
 public:
  /// Throws Error(kInvalidArgument) for a shape that has no rows of 1 to kMaxRowWidth elements.
  RowLayout(const BlockFormat& format, RowShape shape);

  std::int64_t rows() const { return shape_.rows; }
  std::int64_t width() const { return shape_.width; }
  std::int64_t row_blocks() const { return row_blocks_; }
  std::int64_t row_code_bytes() const { return row_code_bytes_; }
  std::int64_t row_scale_bytes() const { return row_scale_bytes_; }
  std::int64_t code_bytes() const { return shape_.rows * row_code_bytes_; }
  std::int64_t scale_offset() const { return scale_offset_; }
  std::int64_t total_bytes() const { return scale_offset_ + shape_.rows * row_scale_bytes_; }

 private:
  RowShape shape_;
  std::int64_t row_blocks_;
  std::int64_t row_code_bytes_;
  std::int64_t row_scale_bytes_;
  std::int64_t scale_offset_;
};
/// The length of a row is a divisor in fp32, which has it exactly up to here.
inline constexpr std::int64_t kMaxRowWidth = std::int64_t{1} << 24;

/// x / sqrt(mean of x^2 + epsilon) * weight.
struct RmsNorm {
  const float* weight = nullptr;  ///< As many as a row has elements; null for ones.
  float epsilon = 1e-5f;
};

/// Where the encoding of rows goes: into a buffer in RowLayout of `rows` rows, of which they are
/// those from `first` on.
struct EncodedRows {
  std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t first = 0;
};

/// What becomes of finished rows, in this order. Absent (null) is what is not wanted.
struct RowEpilogue {
  /// Added in fp32, before the one rounding to the call's type. Of that type; may be the memory
  /// that the rows are written to.
  const void* residual = nullptr;
  /// Of the rows as they are stored, so that whoever reads them can repeat it.
  std::optional<RmsNorm> norm;
  /// Receives the normed rows, in the call's type.
  void* normed = nullptr;
  /// Receives the encoding of the normed rows, as stored; of the rows where there is no norm.
  EncodedRows encoded;
  Rounding rounding;  ///< Of that encoding; first_element is that of the call's first row.

  bool empty() const {
    return residual == nullptr && !norm && normed == nullptr && encoded.data == nullptr;
  }
  /// Whether its encoding is rounded at random.
  bool draws() const { return encoded.data != nullptr && rounding.stochastic; }
};

/// Thread-safe: immutable after construction; any number of threads may use one object.
///
/// Buffers may have any alignment. Element buffers are fp32, bf16 or fp16; encoded ones hold
/// RowLayout(format, shape).total_bytes() bytes. Arguments are checked; a violation throws
/// Error(kInvalidArgument).
class AGOQ_API RowCodec {
 public:
  /// Of the same format, ISA and threads.
  explicit RowCodec(const Codec& codec);

  const BlockFormat& format() const { return codec_.format(); }

  void encode(const void* values, DataType type, RowShape shape, std::byte* encoded,
              const Rounding& rounding = {}) const;
  void decode(const std::byte* encoded, RowShape shape, void* values, DataType type,
              CacheUse use = CacheUse::kAutomatic) const;
  /// Codec::sum_decode of rows, then the epilogue. `values`, which may be null where the epilogue
  /// has another output, may be the memory of pieces.own where that has the same type.
  void sum_decode(const Pieces& pieces, RowShape shape, float factor, void* values, DataType type,
                  const RowEpilogue& epilogue = {}) const;
  /// Codec::sum_encode of rows.
  void sum_encode(const Pieces& pieces, RowShape shape, float factor, std::byte* encoded,
                  void* values, DataType type, const Rounding& rounding = {}) const;
  /// The epilogue of rows that need no sum. `out`, which may be null or `values`, receives the rows
  /// with the residual added.
  void apply(const void* values, DataType type, RowShape shape, void* out,
             const RowEpilogue& epilogue) const;
  /// Throws what apply() would for an epilogue that asks for what cannot be.
  void check(DataType type, RowShape shape, const void* out, const RowEpilogue& epilogue) const;

 private:
  class Pass;

  /// Whether rows are a flat buffer, which Codec encodes as a whole to the same bytes.
  bool is_flat(RowShape shape, const std::byte* encoded) const;
  bool are_flat(const Pieces& pieces, RowShape shape) const;

  Codec codec_;
  const RowKernels* row_kernels_;
};

}  // namespace agoq
