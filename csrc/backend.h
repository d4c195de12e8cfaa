// The torch.distributed backend "agoq": a c10d::Backend that serves what it can itself and hands
// the rest to an inner backend of each device type (Gloo, NCCL).
//
// quantized_ops.cc  all_reduce, reduce_scatter and all_gather in all their forms
// device_ops.cc     the same for tensors on a device
// exact_ops.cc      what is never quantized, and how an exact call runs
// p2p_ops.cc        send and receive
// row_ops.cc        reduce-scatter and all-gather of rows, finished while they are in cache
// group_ops.cc      split, coalescing, timeouts, sequence numbers, abort, shutdown
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "agoqcomm/communicator.h"
#include "device_group.h"
#include "device_support.h"
#include "issue_lock.h"
#include "options.h"
#include "peer_processes.h"
#include "row_ops.h"
#include "work.h"
#include "worker.h"

namespace agoq {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using OptionsPtr = c10::intrusive_ptr<AgoqOptions>;

/// Makes this rank's backend of a new group: what Python's creator does, for split().
using MakeBackend = std::function<BackendPtr(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                             int size, const OptionsPtr& options)>;

/// The parts of a backend that come from outside.
struct Parts {
  /// By device type name ("cpu", "cuda"): serves what the core does not.
  std::map<std::string, BackendPtr> inner;
  std::unique_ptr<Transport> transport;
  /// Device types whose tensors are quantized. The inner backend moves their bytes, or, where that
  /// is Gloo, a second transport of the host.
  std::map<c10::DeviceType, DeviceSupport> devices;
  std::unique_ptr<Transport> device_transport;
  PeerProcesses peers;
  std::optional<Topology> topology;
  MakeBackend make_backend;
};

struct DeviceOrder {
  bool operator()(const c10::Device& a, const c10::Device& b) const {
    return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
  }
};

/// What a call is: to the caller, to the other ranks and to the counters.
struct Call {
  Operation operation;
  c10d::OpType type;
  const char* title;
  std::chrono::milliseconds timeout;
  DataType data_type = DataType::kOther;
  agoq::ReduceOp reduce = agoq::ReduceOp::kNone;
  std::int64_t count = 0;
  int root = 0;
  ExactReason reason = ExactReason::kOperation;
  double factor = 1;
};

/// Collectives are overridden by the names that every torch since 2.11 has; the *_single names of
/// 2.14 call them.
///
/// Thread-safe as any c10d::Backend: collectives must be called in the same order on all ranks. CPU
/// collectives are queued and, but for synchronous ones, do not block the caller. CUDA
/// calls are put on a stream at once: quantized ones on the group's own, others on NCCL's.
class AgoqBackend : public c10d::Backend {
 public:
  AgoqBackend(int rank, int size, OptionsPtr options, Parts parts);
  ~AgoqBackend() override;

  const std::string getBackendName() const override { return "agoq"; }
  /// A copy, since torch writes the name and timeout of a group that it splits off into it.
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return c10::make_intrusive<AgoqOptions>(*options_);
  }
  OptionsPtr options() const { return options_; }
  BackendPtr inner(c10::DeviceType type) const;
  Stats stats() const;
  void reset_stats();
  std::string describe() const;

  // quantized_ops.cc
  WorkPtr allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(TensorList& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce_scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<TensorList>& outputs, TensorList& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                          const c10d::AllgatherOptions& options) override;

  // exact_ops.cc
  WorkPtr allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr broadcast(TensorList& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr reduce(TensorList& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr gather(std::vector<TensorList>& outputs, TensorList& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(TensorList& outputs, TensorList& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // p2p_ops.cc
  WorkPtr send(TensorList& tensors, int destination, int tag) override;
  WorkPtr recv(TensorList& tensors, int source, int tag) override;
  WorkPtr recvAnysource(TensorList& tensors, int tag) override;

  // row_ops.cc. `rows` of each rank; all tensors of a call are on one device. Where a call is not
  // `async` its caller waits at once, and there may be no Work (see enqueue()).
  /// Whether these calls take tensors of the device, which all ranks see alike. One does not, and
  /// says so: a sum that is exact, on a device that is not the CPU.
  bool serves_rows(c10::Device device) const;
  WorkPtr reduce_scatter_rows(const at::Tensor& output, const at::Tensor& input,
                              const std::vector<std::int64_t>& rows, const RowTensors& epilogue,
                              std::optional<bool> quantize, bool async);
  WorkPtr all_gather_rows(const at::Tensor& output, const at::Tensor& input,
                          const std::vector<std::int64_t>& rows, std::optional<bool> quantize,
                          bool async);
  WorkPtr all_gather_encoded_rows(const at::Tensor& output, const at::Tensor& encoded,
                                  const std::vector<std::int64_t>& rows, bool async);
  /// On this rank alone: at once, or on the caller's stream. `output` may be undefined.
  void finish_rows(const at::Tensor& values, const at::Tensor& output, const RowTensors& epilogue);

  // group_ops.cc
  bool supportsSplitting() const override { return true; }
  BackendPtr split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                   const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  bool supportsCoalescing() const override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override;
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setGroupUid(const std::string& uid) override;
  void eagerConnectSingleDevice(at::Device device) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  using Issue = std::function<WorkPtr(c10d::Backend&)>;

  /// Queues `body` for the worker, which completes the returned Work with what it throws. Where the
  /// call is not `async`, so that its caller waits at once, and nothing is before it, `body` runs
  /// on the caller's thread: this throws what it throws, and there is no Work (torch takes null for
  /// a call that has ended). That spares two hand-offs between threads and the making of the Work.
  WorkPtr enqueue(const Call& call, bool async, const TensorList& inputs, const TensorList& outputs,
                  std::function<void()> body);
  /// Runs `body` and returns what it throws, as torch's errors; a fatal one fails the group.
  std::exception_ptr serve(const std::function<void()>& body);
  /// Serves the call by an inner backend: on the worker for the CPU, at once for other devices.
  WorkPtr exact(const Call& call, const TensorList& inputs, const TensorList& outputs, Issue issue);
  WorkPtr issue_on_device(c10d::Backend& backend, const Issue& issue);
  /// exact() on the worker: checks the call with the other ranks, issues it, waits for it.
  void run_exact(const Call& call, const Issue& issue);
  void wait_for_inner(const Call& call, const Issue& issue);
  /// Quantized, or exact over a transport that is faster than Gloo; `tensor` is one of the call's.
  bool core_serves(const Call& call, const at::Tensor& tensor) const;
  CallOptions core_options(const Call& call) const;

  Call reduction(Operation operation, c10d::OpType type, const char* title,
                 const at::Tensor& tensor, std::int64_t count, const c10d::ReduceOp& op,
                 std::chrono::milliseconds timeout) const;
  Call gathering(c10d::OpType type, const char* title, const at::Tensor& tensor, std::int64_t count,
                 std::chrono::milliseconds timeout) const;
  void run_all_reduce(const Call& call, const at::Tensor& tensor,
                      const c10d::AllreduceOptions& options);
  void run_reduce_scatter(const Call& call, const at::Tensor& output, const TensorList& inputs,
                          const c10d::ReduceScatterOptions& options);
  void run_all_gather(const Call& call, const TensorList& outputs, const at::Tensor& input,
                      const c10d::AllgatherOptions& options);

  // row_ops.cc
  void require_rows_served(const at::Tensor& rows) const;
  void require_encoded(const at::Tensor& encoded, const at::Tensor& rows) const;

  // device_ops.cc
  using WorkspaceOf = std::function<std::size_t(const DeviceCommunicator& communicator)>;
  bool device_serves(const Call& call, const at::Tensor& tensor) const;
  /// Whether there are kernels for devices of the type, and for as many ranks.
  bool kernels_serve(c10::DeviceType type) const;
  /// Of several calls at once: all of them, none, or (unset) some.
  std::optional<bool> served_on_device(const std::vector<Call>& calls,
                                       const at::Tensor& tensor) const;
  /// Made at the first call with a tensor of the device.
  DeviceGroup& device_group(c10::Device device);
  WorkPtr on_device(const Call& call, const TensorList& inputs, const TensorList& outputs,
                    const WorkspaceOf& workspace, const DeviceGroup::Body& body);
  WorkPtr device_all_reduce(const Call& call, const TensorList& tensors);
  /// inputs[i] is a tensor for each rank, or one of all ranks' chunks in a row.
  WorkPtr device_reduce_scatter(const std::vector<Call>& calls, const TensorList& outputs,
                                const std::vector<TensorList>& inputs);
  /// outputs[i] is a tensor for each rank, or one of all ranks' chunks in a row.
  WorkPtr device_all_gather(const std::vector<Call>& calls, const std::vector<TensorList>& outputs,
                            const TensorList& inputs);
  /// For calls of which only some are quantized.
  WorkPtr one_by_one(std::size_t count, const TensorList& outputs,
                     const std::function<WorkPtr(std::size_t)>& call) const;
  /// Calls that came between startCoalescing() and endCoalescing().
  std::vector<WorkPtr> run_deferred();
  void abort_devices(const std::string& reason) noexcept;
  bool drain_devices(std::chrono::milliseconds limit) const;
  std::string describe_devices() const;

  /// The tensors that only the root of a gather or scatter has; throws ValueError.
  TensorList list_of_root(std::vector<TensorList>& lists, const at::Tensor& own, const Call& call,
                          const char* name) const;

  WorkPtr peer_work(Operation operation, c10d::OpType type, const char* title,
                    const TensorList& tensors, const std::string& what, const Issue& issue);

  std::chrono::milliseconds timeout_or_default(std::chrono::milliseconds timeout) const;
  /// Makes all later calls fail with `reason`; the first reason stays.
  void fail(const std::string& reason);
  /// Throws the reason of an earlier failure.
  void require_healthy() const;
  /// Remembers the work when between startCoalescing() and endCoalescing().
  WorkPtr coalesced(WorkPtr work, c10::DeviceType device, const TensorList& outputs);

  const OptionsPtr options_;
  const std::map<c10::DeviceType, BackendPtr> inner_;
  const PeerProcesses peers_;
  const MakeBackend make_backend_;
  const std::map<c10::DeviceType, DeviceSupport> device_support_;
  const bool core_serves_exact_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::uint64_t> sequence_{0};

  mutable std::mutex mutex_;
  std::string failure_;
  bool shut_down_ = false;
  std::vector<WorkPtr> coalesced_;
  TensorList coalesced_outputs_;  ///< Of all calls of the bracket.
  std::vector<std::function<WorkPtr()>> deferred_;
  std::string last_split_name_;
  std::optional<c10::weak_intrusive_ptr<c10d::Backend>> last_split_;

  // In this order: the worker's tasks use the communicator and complete works by the pool.
  const std::unique_ptr<Communicator> communicator_;
  const std::shared_ptr<CallbackPool> callbacks_;
  std::unique_ptr<Worker> worker_;

  /// Held by who issues to a device's inner backend, and for a quantized call as a whole.
  IssueLock issue_lock_{timeout_};
  mutable std::mutex devices_mutex_;
  std::unique_ptr<Transport> device_transport_;  ///< Until a device has taken it.
  std::map<c10::Device, std::unique_ptr<DeviceGroup>, DeviceOrder> device_groups_;
};

}  // namespace agoq
