#include "work.h"

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

GroupWork::GroupWork(int rank, std::vector<WorkPtr> parts)
    : Work(rank, c10d::OpType::COALESCED), parts_(std::move(parts)) {}

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

TensorList GroupWork::result() {
  TensorList all;
  for (const auto& part : parts_) {
    const auto some = part->result();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace agoq
