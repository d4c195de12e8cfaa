// What a caller gets back for a call on a device's stream.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <optional>

#include "device_watch.h"
#include "work.h"

namespace agoq {

/// Made when all of the call is on the stream. wait() makes the caller's current stream wait, not
/// the caller. It holds the outputs only: inputs and memory in use are the allocator's business, by
/// record_stream(). Thread-safe.
class DeviceWork final : public c10d::Work {
 public:
  /// `stream` is current. `number` is the call's with the watch; unset for a call that is captured
  /// in a graph, which does not run now.
  DeviceWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
             const TensorList& inputs, TensorList outputs, const c10::Stream& stream,
             std::shared_ptr<DeviceWatch> watch, std::optional<DeviceWatch::Number> number,
             std::shared_ptr<CallbackPool> callbacks);

  /// Whether the device is done with it. Never true for a captured call.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  /// Stream order. With a timeout the caller waits too, as it does for torch's own NCCL.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  TensorList result() override { return outputs_; }
  /// Completed from the start: who waits for it, or chains to it, does so in stream order.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  /// Completed when the device is done, or has failed.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const std::uint64_t sequence_;
  const TensorList outputs_;
  const c10::Device device_;
  const std::shared_ptr<DeviceWatch> watch_;
  const std::optional<DeviceWatch::Number> number_;
  const std::shared_ptr<CallbackPool> callbacks_;
  c10::Event done_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> result_future_;
};

}  // namespace agoq
