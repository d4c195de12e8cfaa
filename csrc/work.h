// What a caller gets back for a call that the worker thread serves.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "callback_pool.h"

namespace agoq {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using TensorList = std::vector<at::Tensor>;

/// Completed by the worker, once. Thread-safe. It holds the call's tensors until it dies.
class AgoqWork : public c10d::Work {
 public:
  AgoqWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
           const TensorList& inputs, TensorList outputs, std::shared_ptr<CallbackPool> callbacks);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  /// Without a timeout it waits for the worker, which bounds every call by the call's own.
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  void abort() override;
  TensorList result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  float getDuration() const override;

  void complete(std::exception_ptr error);

 private:
  const std::uint64_t sequence_;
  const TensorList inputs_;
  const TensorList outputs_;
  const std::shared_ptr<CallbackPool> callbacks_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point end_;
  /// Made when asked for: most callers only wait(), and marking a future costs a thread hand-off.
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  c10::intrusive_ptr<c10::ivalue::Future> result_future_;
};

/// Several works as one: what endCoalescing() returns. Thread-safe as its parts are.
class GroupWork : public c10d::Work {
 public:
  explicit GroupWork(int rank, std::vector<WorkPtr> parts);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  TensorList result() override;

 private:
  const std::vector<WorkPtr> parts_;
};

}  // namespace agoq
