// The codec on device memory as the device collectives see it: lists of segments on a stream.
//
// CudaCodec is the one that computes on a GPU. The functions are those of Codec (codec.h), bit for
// bit; a list is one launch where the device can do that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "agoqcomm/export.h"
#include "agoqcomm/types.h"

namespace agoq {

/// A part of an encoding: `count` elements that become encoded bytes of their own.
struct DeviceEncodeSegment {
  const void* values = nullptr;
  std::byte* encoded = nullptr;
  std::int64_t count = 0;
  /// Index of values[0] in the call's whole buffer; matters to stochastic rounding only.
  std::int64_t first_element = 0;
};

/// A part of a decoding.
struct DeviceDecodeSegment {
  const std::byte* encoded = nullptr;
  void* values = nullptr;
  std::int64_t count = 0;
};

/// A part of a sum. Null means absent wherever that is not an error.
struct DeviceSumSegment {
  /// Encoded bytes of each rank's piece, in rank order; the entry of DeviceSum::own_rank is
  /// ignored. As many in every segment of a call. The pointers are read before the call returns.
  std::span<const std::byte* const> pieces;
  const void* own = nullptr;       ///< The owner's piece, not encoded, of DeviceSum::own_type.
  const float* start = nullptr;    ///< What the sum starts from: the sum of all earlier ranks.
  const void* residual = nullptr;  ///< Added last, of DeviceSum::residual_type.
  std::byte* encoded = nullptr;    ///< sum_encode's output.
  void* values = nullptr;          ///< sum_decode's output; sum_encode's decoded output.
  std::int64_t count = 0;
  std::int64_t first_element = 0;  ///< See DeviceEncodeSegment.
};

/// What all segments of a sum have in common.
struct DeviceSum {
  int own_rank = -1;  ///< Rank of the pieces that are `own`; -1 where all of them are encoded.
  DataType own_type = DataType::kFloat32;
  DataType residual_type = DataType::kFloat32;
  DataType type = DataType::kFloat32;  ///< Of `values`.
  float factor = 1.0f;                 ///< Times the sum, before the residual is added.
};

/// Thread-safe. Calls put work on the stream and return: they neither allocate nor wait for the
/// device, and may be captured in a graph, which replays the arguments as they were.
class AGOQ_API DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;

  virtual const BlockFormat& format() const = 0;
  /// Most pieces that one sum takes.
  virtual int max_pieces() const = 0;

  /// `rounding.first_element` is added to that of each segment.
  virtual void encode(std::span<const DeviceEncodeSegment> segments, DataType type, void* stream,
                      const Rounding& rounding) const = 0;
  virtual void decode(std::span<const DeviceDecodeSegment> segments, DataType type,
                      void* stream) const = 0;
  virtual void sum_decode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum,
                          void* stream) const = 0;
  virtual void sum_encode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum,
                          void* stream, const Rounding& rounding) const = 0;
};

}  // namespace agoq
