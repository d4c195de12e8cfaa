// The codec of rows of the simulated device: "kernels" are the CPU's, run when the device gets to
// them.
#pragma once

#include <memory>
#include <vector>

#include "agoqcomm/device_row_codec.h"
#include "fake_device.h"

namespace agoq::testing {

/// Thread-safe. Its device may run kernels after it is gone.
class FakeRowCodec final : public DeviceRowCodec {
 public:
  FakeRowCodec(FakeDevice& device, const BlockFormat& format, int max_pieces = 256)
      : device_(device),
        codec_(std::make_shared<const RowCodec>(Codec(format))),
        max_pieces_(max_pieces) {}

  const BlockFormat& format() const override { return codec_->format(); }
  int max_pieces() const override { return max_pieces_; }

  void encode(const void* values, DataType type, RowShape shape, std::byte* encoded, void* stream,
              const Rounding& rounding) const override {
    start(stream,
          [=](const RowCodec& codec) { codec.encode(values, type, shape, encoded, rounding); });
  }
  void decode(const std::byte* encoded, RowShape shape, void* values, DataType type,
              void* stream) const override {
    start(stream, [=](const RowCodec& codec) { codec.decode(encoded, shape, values, type); });
  }
  void sum_decode(const Pieces& pieces, RowShape shape, float factor, void* values, DataType type,
                  void* stream, const RowEpilogue& epilogue) const override {
    const std::vector<const std::byte*> kept(pieces.encoded.begin(), pieces.encoded.end());
    start(stream, [=, own = pieces.own, own_type = pieces.own_type,
                   own_rank = pieces.own_rank](const RowCodec& codec) {
      codec.sum_decode({kept, own, own_type, own_rank}, shape, factor, values, type, epilogue);
    });
  }
  void apply(const void* values, DataType type, RowShape shape, void* out, void* stream,
             const RowEpilogue& epilogue) const override {
    start(stream, [=](const RowCodec& codec) { codec.apply(values, type, shape, out, epilogue); });
  }

 private:
  template <typename Kernel>
  void start(void* stream, Kernel kernel) const {
    device_.enqueue(stream, [codec = codec_, kernel] {
      kernel(*codec);
      return true;
    });
  }

  FakeDevice& device_;
  std::shared_ptr<const RowCodec> codec_;
  int max_pieces_;
};

}  // namespace agoq::testing
