// A group's quantized collectives on one device: its stream, its memory, its communicator.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "agoqcomm/device_communicator.h"
#include "device_streams.h"
#include "device_support.h"
#include "device_watch.h"
#include "device_work.h"
#include "device_workspace.h"

namespace agoq {

/// Calls run one after another on one stream of high priority, which waits for the caller's stream
/// first. The host waits for nothing. Thread-safe; all ranks must issue calls in the same order.
class DeviceGroup {
 public:
  using MakeTransport = std::function<std::unique_ptr<DeviceTransport>(DeviceStreams& streams)>;

  /// What a call is for its work and for errors.
  struct Title {
    int rank;
    c10d::OpType type;
    std::uint64_t sequence;
    const char* title;
    std::string words;  ///< "all_reduce (call 7 on rank 0)".
    std::chrono::milliseconds timeout;
    float factor;
  };
  using Body = std::function<void(DeviceCommunicator& communicator, const DeviceCall& call)>;

  /// `fail` is told once when a call of the group fails or takes too long.
  DeviceGroup(c10::Device device, const DeviceSupport& support, const agoq::Options& options,
              const MakeTransport& make_transport, std::shared_ptr<CallbackPool> callbacks,
              DeviceWatch::Fail fail);
  /// Gives what is on the stream a moment to end.
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  const DeviceCommunicator& communicator() const { return *communicator_; }
  Stats stats() const { return communicator_->stats(); }
  void reset_stats() { communicator_->reset_stats(); }
  std::string describe() const;

  /// Puts on the stream what `body` does with `workspace_bytes` of memory. Temporary tensors that
  /// it makes belong to the stream.
  WorkPtr run(const Title& title, const TensorList& inputs, const TensorList& outputs,
              std::size_t workspace_bytes, const Body& body);

  /// DeviceCommunicator::finish_rows() on the caller's current stream: no peer takes part, and
  /// nothing of the group is in the way.
  void finish_rows(const void* values, DataType type, RowShape shape, void* out,
                   const RowEpilogue& epilogue);

  /// Fails what is unfinished and all later calls. Never waits.
  void abort(const std::string& reason) noexcept;
  /// Waits for all calls; false if that took longer than `limit`.
  bool drain(std::chrono::milliseconds limit) const { return watch_->drain(limit); }

 private:
  DeviceStreams streams_;
  const c10::Stream stream_;
  const std::shared_ptr<CallbackPool> callbacks_;
  mutable std::mutex mutex_;
  std::unique_ptr<DeviceCommunicator> communicator_;
  DeviceWorkspacePool workspace_;
  std::shared_ptr<DeviceWatch> watch_;
};

}  // namespace agoq
