#include "device_work.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <utility>

#include "errors.h"

namespace agoq {

using c10::ivalue::Future;

DeviceWork::DeviceWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                       const TensorList& inputs, TensorList outputs, const c10::Stream& stream,
                       std::shared_ptr<DeviceWatch> watch,
                       std::optional<DeviceWatch::Number> number,
                       std::shared_ptr<CallbackPool> callbacks)
    : Work(rank, type, title, inputs),
      sequence_(sequence),
      outputs_(std::move(outputs)),
      device_(stream.device()),
      watch_(std::move(watch)),
      number_(number),
      callbacks_(std::move(callbacks)),
      done_(device_.type()),
      future_(c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()),
                                          std::vector<c10::Device>{device_})) {
  done_.record(stream);
  // Its events are recorded on the current stream, which is this call's.
  future_->markCompleted(c10::IValue(outputs_));
  // The profiler's range is the time that the host took; the kernels have ranges of their own.
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

bool DeviceWork::isCompleted() {
  return number_ && (watch_->is_done(*number_) || watch_->error(*number_));
}

bool DeviceWork::isSuccess() const { return number_ && watch_->is_done(*number_) && !exception(); }

std::exception_ptr DeviceWork::exception() const {
  return number_ ? watch_->error(*number_) : nullptr;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  synchronize();
  if (timeout == kNoTimeout || !number_) return true;
  const auto deadline = DeviceWatch::Clock::now() + timeout;
  while (!isCompleted()) {
    if (DeviceWatch::Clock::now() > deadline) {
      throw_backend_error("agoq: Timed out after " + std::to_string(timeout.count()) +
                          " ms in wait(); the call itself goes on.");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (const auto error = exception()) std::rethrow_exception(error);
  return true;
}

void DeviceWork::synchronize() {
  if (const auto error = exception()) std::rethrow_exception(error);
  done_.block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

void DeviceWork::abort() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "agoq: one call cannot be aborted alone, since its peers would wait; "
                              "abort the group (dist.distributed_c10d._abort_process_group).");
}

c10::intrusive_ptr<Future> DeviceWork::getFutureResult() {
  std::lock_guard lock(mutex_);
  if (result_future_) return result_future_;
  result_future_ = c10::make_intrusive<Future>(c10::IntType::get());
  if (!number_) {
    result_future_->markCompleted(static_cast<std::int64_t>(c10d::WorkResult::SUCCESS));
    return result_future_;
  }
  // What users chain to the future may block, and the watch must go on.
  watch_->on_end(*number_, [future = result_future_, callbacks = callbacks_](auto error) {
    callbacks->submit([future, error] {
      future->markCompleted(static_cast<std::int64_t>(error ? c10d::WorkResult::COMM_ERROR
                                                            : c10d::WorkResult::SUCCESS));
    });
  });
  return result_future_;
}

}  // namespace agoq
