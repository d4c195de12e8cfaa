// How torch meets the machine: devices, current streams and events.
#include "guard.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <utility>

namespace fake {
namespace {

thread_local int current = 0;

struct Event {
  MarkPtr mark;
};

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);

c10::Stream stream_of(int index) { return c10::Stream(c10::Stream::UNSAFE, kDevice, index); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice.type(); }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream_of(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool is_high_priority) const override {
    // Streams 1 to 4 are the low pool, 5 to 8 the high one.
    static std::atomic<int> next[2];
    return stream_of((is_high_priority ? 5 : 1) + next[is_high_priority ? 1 : 0]++ % 4);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(current, static_cast<int>(stream.id())));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return native_handle(static_cast<int>(stream.id()));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->mark = Machine::get().record(static_cast<int>(stream.id()));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) {
      Machine::get().block(static_cast<int>(stream.id()), static_cast<Event*>(event)->mark);
    }
  }
  bool queryEvent(void* event) const override {
    return !event || Machine::get().query(static_cast<Event*>(event)->mark);
  }
  void synchronizeEvent(void* event) const override {
    if (event) Machine::get().synchronize(static_cast<Event*>(event)->mark);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

  bool queryStream(const c10::Stream& stream) const override {
    return Machine::get().query(Machine::get().record(static_cast<int>(stream.id())));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Machine::get().synchronize(Machine::get().record(static_cast<int>(stream.id())));
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    for (int stream = 0; stream < Machine::kStreams; ++stream) {
      synchronizeStream(stream_of(stream));
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_use(data, static_cast<int>(stream.id()));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

int current_stream() { return current; }

void* native_handle(int stream) {
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(stream + 1));
}

int stream_of_handle(void* handle) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(handle)) - 1;
}

}  // namespace fake
