// Rows on CUDA devices: RowCodec's functions but sum_encode, bit for bit, on device memory.
#pragma once

#include <cstddef>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "agoqcomm/cuda_codec.h"
#include "agoqcomm/device_row_codec.h"
#include "agoqcomm/export.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/types.h"

namespace agoq {

/// Thread-safe, and all that CudaCodec says of memory, streams, graphs and errors holds here. A
/// call is one launch: its rows are read once, but for a norm's second look at what was just
/// stored; where `values` is null, a norm sums its row twice.
class AGOQ_API CudaRowCodec final : public DeviceRowCodec {
 public:
  /// As CudaCodec's constructor.
  explicit CudaRowCodec(const BlockFormat& format, int max_thread_blocks = 0);

  const BlockFormat& format() const override { return codec_.format(); }
  int max_pieces() const override { return CudaCodec::kMaxPieces; }

  void encode(const void* values, DataType type, RowShape shape, std::byte* encoded, void* stream,
              const Rounding& rounding = {}) const override;
  void decode(const std::byte* encoded, RowShape shape, void* values, DataType type,
              void* stream) const override;
  void sum_decode(const Pieces& pieces, RowShape shape, float factor, void* values, DataType type,
                  void* stream, const RowEpilogue& epilogue = {}) const override;
  void apply(const void* values, DataType type, RowShape shape, void* out, void* stream,
             const RowEpilogue& epilogue) const override;

 private:
  bool is_flat(RowShape shape) const { return shape.width % format().block == 0; }
  /// Starts the kernel; the arguments are right.
  void start(const char* function, const Pieces& pieces, RowShape shape, float factor, void* values,
             DataType type, void* stream, const RowEpilogue& epilogue) const;

  CudaCodec codec_;
  int max_thread_blocks_;
};

}  // namespace agoq
