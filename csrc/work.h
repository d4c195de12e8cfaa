// What a caller gets back for a call that the worker thread serves.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
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

/// A send or receive of the inner backend under this backend's name, for profilers and errors.
/// Thread-safe as the inner work is.
class PeerWork : public c10d::Work {
 public:
  /// `what` is it in words, for errors: "send to rank 1".
  PeerWork(int rank, c10d::OpType type, const char* title, const TensorList& tensors,
           std::string what, WorkPtr inner);

  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { inner_->synchronize(); }
  void abort() override { inner_->abort(); }
  TensorList result() override { return inner_->result(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return inner_->getFuture(); }

 private:
  const WorkPtr inner_;
  const std::string what_;
  std::atomic<bool> ended_{false};
};

/// Several works as one: what endCoalescing() returns. Thread-safe as its parts are.
class GroupWork : public c10d::Work {
 public:
  /// `outputs` are those of all parts: NCCL's work of several calls does not know its own.
  GroupWork(int rank, std::vector<WorkPtr> parts, TensorList outputs);

  bool isCompleted() override;
  bool isSuccess() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override;
  TensorList result() override { return outputs_; }
  /// Completed when the calls on CPU tensors are; what it says of others holds in stream order.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  const std::vector<WorkPtr> parts_;
  const TensorList outputs_;
};

}  // namespace agoq
