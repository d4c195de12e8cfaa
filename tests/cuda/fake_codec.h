// The codec of the simulated device: "kernels" are the CPU's, run when the device gets to them. It
// counts the bytes that they move.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "agoqcomm/device_codec.h"
#include "agoqcomm/wire_layout.h"
#include "fake_device.h"

namespace agoq::testing {

/// Thread-safe. Its device may run kernels after it is gone.
class FakeCodec final : public DeviceCodec {
 public:
  FakeCodec(FakeDevice& device, const BlockFormat& format)
      : device_(device), codec_(std::make_shared<const Codec>(format)) {}

  const BlockFormat& format() const override { return codec_->format(); }
  int max_pieces() const override { return 256; }

  void encode(std::span<const DeviceEncodeSegment> segments, DataType type, void* stream,
              const Rounding& rounding) const override {
    for (const DeviceEncodeSegment& segment : segments) {
      count(segment.count, type, 1, 1);
    }
    start(stream, segments, [type, rounding](const Codec& codec, const DeviceEncodeSegment& part) {
      codec.encode(part.values, type, part.count, part.encoded, moved(rounding, part));
    });
  }

  void decode(std::span<const DeviceDecodeSegment> segments, DataType type,
              void* stream) const override {
    for (const DeviceDecodeSegment& segment : segments) count(segment.count, type, 1, 1);
    start(stream, segments, [type](const Codec& codec, const DeviceDecodeSegment& part) {
      codec.decode(part.encoded, part.count, part.values, type);
    });
  }

  void sum_decode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum,
                  void* stream) const override {
    for (const DeviceSumSegment& segment : segments) {
      count(segment.count, sum.type, 2, static_cast<int>(segment.pieces.size()) - 1);
      const Kept kept(segment);
      device_.enqueue(stream, [codec = codec_, kept, sum] {
        codec->sum_decode(kept.pieces_of(sum), kept.segment.count, sum.factor, kept.segment.values,
                          sum.type);
        return true;
      });
    }
  }

  void sum_encode(std::span<const DeviceSumSegment> segments, const DeviceSum& sum, void* stream,
                  const Rounding& rounding) const override {
    for (const DeviceSumSegment& segment : segments) {
      count(segment.count, sum.type, 2, static_cast<int>(segment.pieces.size()));
      const Kept kept(segment);
      device_.enqueue(stream, [codec = codec_, kept, sum, rounding] {
        codec->sum_encode(kept.pieces_of(sum), kept.segment.count, sum.factor, kept.segment.encoded,
                          kept.segment.values, sum.type, moved(rounding, kept.segment));
        return true;
      });
    }
  }

  /// Bytes of values and of encoded bytes that the kernels read and wrote so far.
  std::int64_t bytes_moved() const { return bytes_moved_; }

 private:
  // A segment whose list of pieces outlives the call.
  struct Kept {
    explicit Kept(const DeviceSumSegment& from)
        : segment(from), pieces(from.pieces.begin(), from.pieces.end()) {}
    Pieces pieces_of(const DeviceSum& sum) const {
      return {.encoded = pieces,
              .own = segment.own,
              .own_type = sum.own_type,
              .own_rank = sum.own_rank};
    }
    DeviceSumSegment segment;
    std::vector<const std::byte*> pieces;
  };

  template <typename Segment>
  static Rounding moved(Rounding rounding, const Segment& segment) {
    rounding.first_element += segment.first_element;
    return rounding;
  }

  template <typename Segment, typename Kernel>
  void start(void* stream, std::span<const Segment> segments, Kernel kernel) const {
    device_.enqueue(stream, [codec = codec_, kernel,
                             kept = std::vector<Segment>(segments.begin(), segments.end())] {
      for (const Segment& segment : kept) kernel(*codec, segment);
      return true;
    });
  }

  void count(std::int64_t elements, DataType type, int values, int encodings) const {
    bytes_moved_ += values * elements * static_cast<std::int64_t>(size_of(type)) +
                    encodings * WireLayout(codec_->format(), elements).total_bytes();
  }

  FakeDevice& device_;
  std::shared_ptr<const Codec> codec_;
  mutable std::atomic<std::int64_t> bytes_moved_ = 0;
};

}  // namespace agoq::testing
