#include "device_streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace agoq {

c10::Stream DeviceStreams::create() {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  const auto stream = guard.getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
  std::lock_guard lock(mutex_);
  streams_.emplace(handle(stream), stream);
  return stream;
}

void* DeviceStreams::handle(const c10::Stream& stream) const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStreamNativeHandle(stream);
}

c10::Stream DeviceStreams::stream(void* handle) const {
  std::lock_guard lock(mutex_);
  return streams_.at(handle);
}

}  // namespace agoq
