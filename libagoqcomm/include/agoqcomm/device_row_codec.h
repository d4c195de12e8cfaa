// The codec of rows on device memory, as the device collectives see it.
//
// CudaRowCodec is the one that computes on a GPU. The functions are those of RowCodec
// (row_codec.h), bit for bit.
#pragma once

#include <cstddef>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "agoqcomm/export.h"
#include "agoqcomm/row_codec.h"
#include "agoqcomm/types.h"

namespace agoq {

/// Thread-safe. Calls put work on the stream and return: they neither allocate nor wait for the
/// device, and may be captured in a graph, which replays the arguments as they were. The pointers
/// of Pieces are read before a call returns. Element buffers may have any alignment; encoded ones
/// are aligned to kEncodedAlignment.
class AGOQ_API DeviceRowCodec {
 public:
  static constexpr std::size_t kEncodedAlignment = 4;

  virtual ~DeviceRowCodec() = default;

  virtual const BlockFormat& format() const = 0;
  /// Most pieces that one sum takes; more are Error(kUnsupported).
  virtual int max_pieces() const = 0;

  virtual void encode(const void* values, DataType type, RowShape shape, std::byte* encoded,
                      void* stream, const Rounding& rounding) const = 0;
  virtual void decode(const std::byte* encoded, RowShape shape, void* values, DataType type,
                      void* stream) const = 0;
  virtual void sum_decode(const Pieces& pieces, RowShape shape, float factor, void* values,
                          DataType type, void* stream, const RowEpilogue& epilogue) const = 0;
  virtual void apply(const void* values, DataType type, RowShape shape, void* out, void* stream,
                     const RowEpilogue& epilogue) const = 0;
};

}  // namespace agoq
