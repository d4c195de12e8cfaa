#include "work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "errors.h"

namespace agoq {
namespace {

using c10::ivalue::Future;

void mark(Future& future, c10::IValue value, const std::exception_ptr& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(std::move(value));
  }
}

/// Whether its future says when it ends; the works of devices are for streams to wait for.
bool is_of_the_host(const WorkPtr& work) {
  return dynamic_cast<AgoqWork*>(work.get()) || dynamic_cast<PeerWork*>(work.get());
}

std::vector<c10::Device> devices_of(const TensorList& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& tensor : tensors) {
    const auto device = tensor.device();
    if (!device.is_cpu() && std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  return devices;
}

c10::IValue code_of(const std::exception_ptr& error) {
  return static_cast<int64_t>(error ? c10d::WorkResult::COMM_ERROR : c10d::WorkResult::SUCCESS);
}

}  // namespace

AgoqWork::AgoqWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                   const TensorList& inputs, TensorList outputs,
                   std::shared_ptr<CallbackPool> callbacks)
    : Work(rank, type, title, inputs),
      sequence_(sequence),
      inputs_(inputs),
      outputs_(std::move(outputs)),
      callbacks_(std::move(callbacks)) {}

bool AgoqWork::isCompleted() {
  std::lock_guard lock(mutex_);
  return completed_;
}

bool AgoqWork::isSuccess() const {
  std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

std::exception_ptr AgoqWork::exception() const {
  std::lock_guard lock(mutex_);
  return exception_;
}

bool AgoqWork::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, done);
  } else if (!cv_.wait_for(lock, timeout, done)) {
    throw_backend_error("agoq: Timed out after " + std::to_string(timeout.count()) +
                        " ms in wait(); the call itself goes on.");
  }
  if (exception_) std::rethrow_exception(exception_);
  return true;
}

void AgoqWork::synchronize() { wait(kNoTimeout); }

void AgoqWork::abort() {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "agoq: one call cannot be aborted alone, since its peers would wait; "
                              "abort the group (dist.distributed_c10d._abort_process_group).");
}

TensorList AgoqWork::result() { return outputs_; }

c10::intrusive_ptr<Future> AgoqWork::getFuture() {
  std::lock_guard lock(mutex_);
  if (!future_) {
    future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
    if (completed_) mark(*future_, outputs_, exception_);
  }
  return future_;
}

c10::intrusive_ptr<Future> AgoqWork::getFutureResult() {
  std::lock_guard lock(mutex_);
  if (!result_future_) {
    result_future_ = c10::make_intrusive<Future>(c10::IntType::get());
    if (completed_) result_future_->markCompleted(code_of(exception_));
  }
  return result_future_;
}

float AgoqWork::getDuration() const {
  std::lock_guard lock(mutex_);
  TORCH_CHECK(completed_, "agoq: the duration of a call is known once it has completed.");
  return std::chrono::duration<float, std::milli>(end_ - start_).count();
}

void AgoqWork::complete(std::exception_ptr error) {
  c10::intrusive_ptr<Future> future, result_future;
  {
    std::lock_guard lock(mutex_);
    end_ = std::chrono::steady_clock::now();
  }
  finish(error);
  {
    // A future made from here on finds completed_ set and completes itself.
    std::lock_guard lock(mutex_);
    future = future_;
    result_future = result_future_;
  }
  if (!future && !result_future) return;
  auto self = c10::intrusive_ptr<AgoqWork>::unsafe_reclaim_from_nonowning(this);
  callbacks_->submit([self, future, result_future, error] {
    if (future && !future->completed()) mark(*future, self->outputs_, error);
    if (result_future && !result_future->completed()) result_future->markCompleted(code_of(error));
  });
}

PeerWork::PeerWork(int rank, c10d::OpType type, const char* title, const TensorList& tensors,
                   std::string what, WorkPtr inner)
    : Work(rank, type, title, tensors), inner_(std::move(inner)), what_(std::move(what)) {}

bool PeerWork::wait(std::chrono::milliseconds timeout) {
  std::exception_ptr error;
  bool done = false;
  try {
    done = inner_->wait(timeout);
  } catch (...) {
    error = std::current_exception();
  }
  // The base class ends the profiler's range; it may be told once.
  if (!ended_.exchange(true)) finish(error);
  if (error) {
    throw_network_error("agoq: " + what_ + " failed on rank " + std::to_string(rank_) +
                        "; gloo says: " + first_line(error));
  }
  return done;
}

GroupWork::GroupWork(int rank, std::vector<WorkPtr> parts, TensorList outputs)
    : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)), outputs_(std::move(outputs)) {}

bool GroupWork::isCompleted() {
  for (const auto& part : parts_) {
    if (!part->isCompleted()) return false;
  }
  return true;
}

bool GroupWork::isSuccess() const {
  for (const auto& part : parts_) {
    if (!part->isSuccess()) return false;
  }
  return true;
}

bool GroupWork::wait(std::chrono::milliseconds timeout) {
  for (const auto& part : parts_) part->wait(timeout);
  return true;
}

void GroupWork::synchronize() {
  for (const auto& part : parts_) part->synchronize();
}

c10::intrusive_ptr<Future> GroupWork::getFuture() {
  const auto devices = devices_of(outputs_);
  auto future = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()), devices);
  // Streams of the pool, which alone wait for the parts: the caller's go on.
  std::vector<c10::Stream> streams;
  for (const auto& device : devices) {
    streams.push_back(
        c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false));
  }
  std::vector<c10::intrusive_ptr<Future>> of_the_host;
  std::vector<WorkPtr> of_devices;
  for (const auto& part : parts_) {
    if (is_of_the_host(part)) {
      of_the_host.push_back(part->getFuture());
    } else {
      of_devices.push_back(part);
    }
  }
  const auto complete = [future, streams, of_devices, outputs = outputs_](auto error) {
    const c10::MultiStreamGuard guard(streams);
    try {
      if (error) std::rethrow_exception(error);
      for (const auto& part : of_devices) part->synchronize();
      future->markCompleted(outputs);
    } catch (...) {
      future->setError(std::current_exception());
    }
  };
  if (of_the_host.empty()) {
    complete(std::exception_ptr());
    return future;
  }
  const auto open = std::make_shared<std::atomic<std::size_t>>(of_the_host.size());
  for (const auto& part : of_the_host) {
    part->addCallback([open, of_the_host, complete](Future&) {
      if (--*open > 0) return;
      std::exception_ptr error;
      for (const auto& ended : of_the_host) {
        if (!error && ended->hasError()) error = ended->exception_ptr();
      }
      complete(error);
    });
  }
  return future;
}

}  // namespace agoq
