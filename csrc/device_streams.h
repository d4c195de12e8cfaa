// The runtime of a device whose streams are torch's, so that torch's allocator and the inner
// backend know them.
#pragma once

#include <c10/core/Stream.h>

#include <mutex>
#include <unordered_map>

#include "agoqcomm/device_runtime.h"

namespace agoq {

/// Thread-safe. All but the streams comes from `base`, which outlives it.
class DeviceStreams final : public DeviceRuntime {
 public:
  DeviceStreams(c10::Device device, DeviceRuntime& base) : device_(device), base_(base) {}

  c10::Device device() const { return device_; }
  /// One of torch's pool of high priority.
  c10::Stream create();
  /// What the core calls the stream.
  void* handle(const c10::Stream& stream) const;
  /// The stream of a handle that create() or create_stream() has made.
  c10::Stream stream(void* handle) const;

  void* create_stream() override { return handle(create()); }
  /// The pool keeps its streams.
  void destroy_stream(void*) noexcept override {}
  bool is_capturing(void* stream) override { return base_.is_capturing(stream); }
  void* create_event() override { return base_.create_event(); }
  void destroy_event(void* event) noexcept override { base_.destroy_event(event); }
  void record(void* event, void* stream) override { base_.record(event, stream); }
  void wait(void* event, void* stream) override { base_.wait(event, stream); }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    base_.copy(to, from, bytes, stream);
  }
  void* allocate_pinned(std::size_t bytes) override { return base_.allocate_pinned(bytes); }
  void free_pinned(void* memory) noexcept override { base_.free_pinned(memory); }
  void write_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    base_.write_value(word, value, stream);
  }
  void wait_value(std::uint32_t* word, std::uint32_t value, void* stream) override {
    base_.wait_value(word, value, stream);
  }

 private:
  const c10::Device device_;
  DeviceRuntime& base_;
  mutable std::mutex mutex_;
  std::unordered_map<void*, c10::Stream> streams_;
};

}  // namespace agoq
