// The library's runtime on the machine's streams, and its CPU codecs as those of the device.
#include "support.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "agoqcomm/codec.h"
#include "agoqcomm/row_codec.h"
#include "guard.h"

namespace fake {
namespace {

std::atomic<bool> codec_fails{false};
std::atomic<bool> pinned_fails{false};

struct Event {
  MarkPtr mark;
};

void submit(void* stream, const std::string& what, Work work) {
  Machine::get().submit(stream_of_handle(stream), what, std::move(work));
}

class Runtime final : public agoq::DeviceRuntime {
 public:
  void* create_stream() override { throw std::logic_error("fake: streams are torch's"); }
  void destroy_stream(void*) noexcept override {}
  bool is_capturing(void* stream) override {
    return Machine::get().is_capturing(stream_of_handle(stream));
  }
  void* create_event() override { return new Event; }
  void destroy_event(void* event) noexcept override { delete static_cast<Event*>(event); }
  void record(void* event, void* stream) override {
    static_cast<Event*>(event)->mark = Machine::get().record(stream_of_handle(stream));
  }
  void wait(void* event, void* stream) override {
    const auto& mark = static_cast<Event*>(event)->mark;
    if (mark) Machine::get().block(stream_of_handle(stream), mark);
  }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    submit(stream, "copy", [=] { std::memcpy(to, from, bytes); });
  }
  void* allocate_pinned(std::size_t bytes) override {
    if (pinned_fails) throw std::runtime_error("fake: no pinned memory");
    return std::malloc(bytes);
  }
  void free_pinned(void* memory) noexcept override { std::free(memory); }
  void write_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    submit_eager(stream, "write value", [=] { std::atomic_ref(*word).store(value); });
  }
  void wait_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    submit_eager(stream, "wait value", [=] {
      while (static_cast<std::int32_t>(std::atomic_ref(*word).load() - value) < 0) {
        std::this_thread::yield();
      }
    });
  }

 private:
  void submit_eager(void* stream, const std::string& what, Work work) {
    if (is_capturing(stream)) throw std::runtime_error("fake: " + what + " in a captured stream");
    submit(stream, what, std::move(work));
  }
};

class Codec final : public agoq::DeviceCodec {
 public:
  explicit Codec(const agoq::BlockFormat& format) : codec_(format) {}

  const agoq::BlockFormat& format() const override { return codec_.format(); }
  int max_pieces() const override { return 256; }

  void encode(std::span<const agoq::DeviceEncodeSegment> segments, agoq::DataType type,
              void* stream, const agoq::Rounding& rounding) const override {
    submit(stream, "encode", [=, this, list = std::vector(segments.begin(), segments.end())] {
      for (const auto& segment : list) {
        codec_.encode(segment.values, type, segment.count, segment.encoded,
                      from(rounding, segment.first_element));
      }
    });
  }
  void decode(std::span<const agoq::DeviceDecodeSegment> segments, agoq::DataType type,
              void* stream) const override {
    submit(stream, "decode", [=, this, list = std::vector(segments.begin(), segments.end())] {
      for (const auto& segment : list) {
        codec_.decode(segment.encoded, segment.count, segment.values, type);
      }
    });
  }
  void sum_decode(std::span<const agoq::DeviceSumSegment> segments, const agoq::DeviceSum& sum,
                  void* stream) const override {
    submit(stream, "sum_decode", [=, this, list = sums_of(segments)] {
      for (const auto& [segment, pieces] : list) {
        codec_.sum_decode(pieces_of(pieces, segment, sum), segment.count, sum.factor,
                          segment.values, sum.type);
      }
    });
  }
  void sum_encode(std::span<const agoq::DeviceSumSegment> segments, const agoq::DeviceSum& sum,
                  void* stream, const agoq::Rounding& rounding) const override {
    submit(stream, "sum_encode", [=, this, list = sums_of(segments)] {
      for (const auto& [segment, pieces] : list) {
        codec_.sum_encode(pieces_of(pieces, segment, sum), segment.count, sum.factor,
                          segment.encoded, segment.values, sum.type,
                          from(rounding, segment.first_element));
      }
    });
  }

 private:
  using Sum = std::pair<agoq::DeviceSumSegment, std::vector<const std::byte*>>;

  static std::vector<Sum> sums_of(std::span<const agoq::DeviceSumSegment> segments) {
    std::vector<Sum> all;
    for (const auto& segment : segments) {
      if (segment.start || segment.residual) throw std::logic_error("fake: a sum of another kind");
      all.emplace_back(segment, std::vector(segment.pieces.begin(), segment.pieces.end()));
    }
    return all;
  }
  static agoq::Pieces pieces_of(const std::vector<const std::byte*>& encoded,
                                const agoq::DeviceSumSegment& segment, const agoq::DeviceSum& sum) {
    return {encoded, segment.own, sum.own_type, segment.own ? sum.own_rank : -1};
  }
  static agoq::Rounding from(agoq::Rounding rounding, std::int64_t first_element) {
    rounding.first_element += first_element;
    return rounding;
  }

  const agoq::Codec codec_;
};

class RowCodec final : public agoq::DeviceRowCodec {
 public:
  explicit RowCodec(const agoq::BlockFormat& format) : codec_(agoq::Codec(format)) {}

  const agoq::BlockFormat& format() const override { return codec_.format(); }
  int max_pieces() const override { return 256; }

  void encode(const void* values, agoq::DataType type, agoq::RowShape shape, std::byte* encoded,
              void* stream, const agoq::Rounding& rounding) const override {
    submit(stream, "encode_rows",
           [=, this] { codec_.encode(values, type, shape, encoded, rounding); });
  }
  void decode(const std::byte* encoded, agoq::RowShape shape, void* values, agoq::DataType type,
              void* stream) const override {
    submit(stream, "decode_rows", [=, this] { codec_.decode(encoded, shape, values, type); });
  }
  void sum_decode(const agoq::Pieces& pieces, agoq::RowShape shape, float factor, void* values,
                  agoq::DataType type, void* stream,
                  const agoq::RowEpilogue& epilogue) const override {
    // The list of pieces is the caller's, and need not outlive the call.
    submit(stream, "sum_rows",
           [=, this, encoded = std::vector(pieces.encoded.begin(), pieces.encoded.end())] {
             const agoq::Pieces kept{encoded, pieces.own, pieces.own_type, pieces.own_rank};
             codec_.sum_decode(kept, shape, factor, values, type, epilogue);
           });
  }
  void apply(const void* values, agoq::DataType type, agoq::RowShape shape, void* out, void* stream,
             const agoq::RowEpilogue& epilogue) const override {
    codec_.check(type, shape, out, epilogue);
    submit(stream, "apply_rows", [=, this] { codec_.apply(values, type, shape, out, epilogue); });
  }

 private:
  const agoq::RowCodec codec_;
};

}  // namespace

agoq::DeviceSupport& support() {
  static auto* const runtime = new Runtime;
  static auto* const support = new agoq::DeviceSupport{
      runtime,
      [](const agoq::BlockFormat& format) {
        if (codec_fails) throw std::runtime_error("fake: no codec");
        return std::make_unique<Codec>(format);
      },
      [](const agoq::BlockFormat& format) { return std::make_unique<RowCodec>(format); }, 256};
  return *support;
}

void set_codec_fails(bool fails) { codec_fails = fails; }
void set_pinned_fails(bool fails) { pinned_fails = fails; }

}  // namespace fake
