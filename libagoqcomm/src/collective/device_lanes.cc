#include "collective/device_lanes.h"

namespace agoq {

DeviceLanes::DeviceLanes(DeviceRuntime& runtime) : runtime_(runtime) {
  try {
    wire_ = runtime.create_stream();
    computed_ = runtime.create_event();
    for (void*& marker : markers_) marker = runtime.create_event();
  } catch (...) {
    destroy();
    throw;
  }
}

DeviceLanes::~DeviceLanes() { destroy(); }

void DeviceLanes::destroy() noexcept {
  for (void* marker : markers_) {
    if (marker != nullptr) runtime_.destroy_event(marker);
  }
  if (computed_ != nullptr) runtime_.destroy_event(computed_);
  if (wire_ != nullptr) runtime_.destroy_stream(wire_);
}

void DeviceLanes::fork(void* compute) {
  runtime_.record(computed_, compute);
  runtime_.wait(computed_, wire_);
}

void DeviceLanes::mark(Traffic traffic, std::int64_t step) {
  runtime_.record(marker(traffic, step), wire_);
}

void DeviceLanes::join(Traffic traffic, std::int64_t step, void* compute) {
  runtime_.wait(marker(traffic, step), compute);
}

}  // namespace agoq
