// What NCCL is to CUDA: a backend that moves bytes of the device in the order of streams.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace fake {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using TensorList = std::vector<at::Tensor>;

/// Its bytes travel by a Gloo of its own, on a stream of its own. Between startCoalescing() and
/// endCoalescing() sends and receives form one group, as NCCL's do, and return no work.
class Backend final : public c10d::Backend {
 public:
  Backend(int rank, int size, BackendPtr gloo);

  const std::string getBackendName() const override { return "fakeccl"; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  WorkPtr send(TensorList& tensors, int peer, int tag) override;
  WorkPtr recv(TensorList& tensors, int peer, int tag) override;
  WorkPtr allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& out_splits, std::vector<std::int64_t>& in_splits,
                        const c10d::AllToAllOptions& options) override;
  void setTimeout(std::chrono::milliseconds) override {}
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override {
    if (throws_) throw std::runtime_error("fakeccl is past speaking");
    return error_;
  }
  void abort() override { aborted_ = true; }
  void shutdown() override { aborted_ = true; }

  /// From here on a bracket stays open for this long when it is to be closed. An operation of
  /// another thread that comes meanwhile is an "intrusion" in the log.
  void linger(std::chrono::milliseconds time) { linger_ = time; }
  bool has_open_bracket() const { return coalescing_; }

  /// From here on getError() says so, or cannot say anything.
  void break_down(bool throws) {
    if (throws) {
      throws_ = true;
    } else {
      error_ = c10d::ErrorType::COMM_ERROR;
    }
  }

 private:
  /// Starts operations of Gloo.
  using Start = std::function<std::vector<WorkPtr>()>;

  WorkPtr put(const std::string& what, Start start);
  WorkPtr put_or_collect(const std::string& what, Start start);

  const BackendPtr gloo_;
  const int stream_;
  std::atomic<bool> coalescing_{false};
  std::thread::id bracket_of_;
  std::atomic<std::chrono::milliseconds> linger_{std::chrono::milliseconds(0)};
  std::vector<Start> collected_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> throws_{false};
  std::atomic<c10d::ErrorType> error_{c10d::ErrorType::SUCCESS};
};

}  // namespace fake
