// The codec on CUDA devices: the same functions as Codec, bit for bit, on device memory and a
// stream. Builds without CUDA have the class too; its constructor then throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "agoqcomm/block_format.h"
#include "agoqcomm/codec.h"
#include "agoqcomm/device_codec.h"
#include "agoqcomm/export.h"
#include "agoqcomm/types.h"

namespace agoq {

/// Thread-safe: immutable after construction; any number of threads may use one object.
///
/// All buffers are device memory of the calling thread's current device, and `stream` is a
/// cudaStream_t of that device (null: the default stream). Calls start kernels on the stream and
/// return: they neither allocate nor wait, and may be captured in a CUDA graph, which replays the
/// arguments as they were (a Rounding's `call` too). Elements of several segments go into one
/// launch for up to kMaxEncodeSegments, or kMaxSumSegments and kMaxPieces; longer lists take more
/// launches.
///
/// Element buffers may have any alignment; from 16 bytes on they are accessed fastest. Encoded
/// buffers must be aligned to 4, and 8 is fastest. An output may be the memory of an input of its
/// segment with elements of the same size (encoded: of whole pieces), and overlaps no input
/// otherwise. Arguments are checked, overlaps only those of sum_encode's `encoded` with pieces:
/// Error(kInvalidArgument). What CUDA refuses is Error(kSystem).
class AGOQ_API CudaCodec final : public DeviceCodec {
 public:
  static constexpr int kMaxEncodeSegments = 64;
  static constexpr int kMaxSumSegments = 16;
  /// Pieces of a sum, and pieces times segments of one launch. More pieces take several calls, each
  /// of which starts from the fp32 sum of the one before.
  static constexpr int kMaxPieces = 256;

  /// Whether this build has kernels, whatever the machine has.
  static bool is_built() noexcept;
  /// Devices that CUDA reports; 0 where there is no driver or is_built() is false.
  static int device_count() noexcept;

  /// Throws Error(kUnsupported) where device_count() is 0. `max_thread_blocks` bounds the width of
  /// a launch, to leave multiprocessors to others; 0 means as wide as is fastest.
  explicit CudaCodec(const BlockFormat& format, int max_thread_blocks = 0);

  const BlockFormat& format() const override { return format_; }
  int max_pieces() const override { return kMaxPieces; }

  void encode(const void* values, DataType type, std::int64_t count, std::byte* encoded,
              void* stream, const Rounding& rounding = {}) const;
  void decode(const std::byte* encoded, std::int64_t count, void* values, DataType type,
              void* stream) const;
  void decode_accumulate(const std::byte* encoded, std::int64_t count, float* accumulator,
                         void* stream) const;
  void sum_decode(const Pieces& pieces, std::int64_t count, float factor, void* values,
                  DataType type, void* stream) const;
  void sum_encode(const Pieces& pieces, std::int64_t count, float factor, std::byte* encoded,
                  void* values, DataType type, void* stream, const Rounding& rounding = {}) const;

  // The same for lists of segments.
  void encode(std::span<const DeviceEncodeSegment> segments, DataType type, void* stream,
              const Rounding& rounding = {}) const override;
  void decode(std::span<const DeviceDecodeSegment> segments, DataType type,
              void* stream) const override;
  void decode_accumulate(std::span<const DeviceDecodeSegment> segments, void* stream) const;
  void sum_decode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum,
                  void* stream) const override;
  void sum_encode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum, void* stream,
                  const Rounding& rounding = {}) const override;

 private:
  BlockFormat format_;
  int max_thread_blocks_;
};

}  // namespace agoq
