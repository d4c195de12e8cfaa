// Device memory by the sends and receives of an inner backend that orders streams, such as NCCL's.
#pragma once

#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "agoqcomm/device_transport.h"
#include "device_streams.h"

namespace agoq {

/// Gloo takes device tensors too, but moves them through the host while the caller waits.
bool orders_streams(const c10d::Backend& backend);

/// An exchange is one coalesced group of the backend, which thus knows the call and watches it too.
class C10dDeviceTransport final : public DeviceTransport {
 public:
  /// Streams of exchanges are those of `streams`, which outlives it. During an exchange nobody else
  /// issues operations to `backend`.
  C10dDeviceTransport(c10::intrusive_ptr<c10d::Backend> backend, const DeviceStreams& streams);

  std::string_view name() const override { return name_; }
  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

  void exchange(std::span<const DeviceSend> sends, std::span<const DeviceReceive> receives,
                void* stream) override;
  bool can_be_captured() const override { return true; }
  std::string error() override;
  void abort(const std::string& reason) noexcept override;

 private:
  at::Tensor wrap(const void* data, std::size_t bytes) const;

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const DeviceStreams& streams_;
  const std::string name_;
  std::mutex mutex_;
  std::string failure_;
};

}  // namespace agoq
