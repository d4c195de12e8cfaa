#include "c10d_device_transport.h"

#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>

#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "errors.h"

namespace agoq {

bool orders_streams(const c10d::Backend& backend) { return backend.getBackendName() != "gloo"; }

C10dDeviceTransport::C10dDeviceTransport(c10::intrusive_ptr<c10d::Backend> backend,
                                         const DeviceStreams& streams)
    : backend_(std::move(backend)), streams_(streams), name_(backend_->getBackendName()) {}

at::Tensor C10dDeviceTransport::wrap(const void* data, std::size_t bytes) const {
  return at::for_blob(const_cast<void*>(data), {static_cast<std::int64_t>(bytes)})
      .options(at::TensorOptions().dtype(at::kByte).device(streams_.device()))
      .target_device(streams_.device())
      .make_tensor();
}

void C10dDeviceTransport::exchange(std::span<const DeviceSend> sends,
                                   std::span<const DeviceReceive> receives, void* stream) {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) throw Error(ErrorCode::kAborted, failure_);
  }
  if (sends.empty() && receives.empty()) return;
  const c10::StreamGuard guard(streams_.stream(stream));
  try {
    backend_->startCoalescing();
    for (const auto& message : receives) {
      std::vector<at::Tensor> tensors{wrap(message.data, message.bytes)};
      backend_->recv(tensors, message.peer, 0);
    }
    for (const auto& message : sends) {
      std::vector<at::Tensor> tensors{wrap(message.data, message.bytes)};
      backend_->send(tensors, message.peer, 0);
    }
    // The backend moves bytes on a stream of its own, and this one waits for it.
    if (const auto work = backend_->endCoalescing()) work->synchronize();
  } catch (...) {
    throw Error(ErrorCode::kSystem,
                name_ + " refused an exchange: " + first_line(std::current_exception()));
  }
}

std::string C10dDeviceTransport::error() {
  switch (backend_->getError()) {
    case c10d::ErrorType::SUCCESS:
      return "";
    case c10d::ErrorType::TIMEOUT:
      return name_ + " reports that one of its operations Timed out ; its log says which";
    default:
      return name_ + " reports an error; its log says which";
  }
}

void C10dDeviceTransport::abort(const std::string& reason) noexcept {
  {
    std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = reason;
  }
  try {
    backend_->abort();
  } catch (...) {
    // It may have been aborted before; there is nobody to tell.
  }
}

}  // namespace agoq
