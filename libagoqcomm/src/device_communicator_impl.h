// What stands behind a DeviceCommunicator: turns, failure, counters, and the run of one collective.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "agoqcomm/device_communicator.h"
#include "collective/chunk_plan.h"
#include "collective/device_lanes.h"
#include "collective/device_steps.h"
#include "collective/rows_of_call.h"

namespace agoq {

/// What decides how a call runs, but for its counts.
struct DeviceCallKind {
  Operation operation;
  DataType type;
  ReduceOp op;
  std::optional<bool> quantize;
  const RowsOfCall* rows = nullptr;  ///< Where the call has rows.
};

/// Thread-safe as DeviceCommunicator is.
class DeviceCommunicator::Impl {
 public:
  Impl(std::unique_ptr<DeviceTransport> transport, std::unique_ptr<DeviceCodec> codec,
       DeviceRuntime& runtime, const Options& options, std::int64_t segment_numel,
       std::unique_ptr<DeviceRowCodec> rows);

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const Options& options() const { return options_; }
  /// Throws Error(kUnsupported) where there is none.
  const DeviceRowCodec& row_codec() const;

  bool serves(const DeviceCallKind& kind, std::int64_t count) const;

  ChunkPlan balanced(std::int64_t count) const {
    return ChunkPlan::balanced(count, size(), options_.format.block, segment_numel_);
  }
  ChunkPlan given(std::span<const std::int64_t> counts) const {
    return ChunkPlan::given(counts, options_.format.block, segment_numel_);
  }
  ChunkPlan given_rows(std::span<const std::int64_t> counts, std::int64_t width) const;

  std::size_t workspace(const DeviceCallKind& kind, const ChunkPlan& plan) const;

  using Body = std::function<void(DeviceSteps& steps)>;
  /// Runs `quantized` or `exact` as the kind and why_exact() say, in turn with other calls.
  void run(const DeviceCallKind& kind, const ChunkPlan& plan, const DeviceCall& call,
           const Body& quantized, const Body& exact);

  void copy(void* to, const void* from, std::int64_t count, DataType type, void* stream);
  /// Refuses a call that rounds at random where the stream is being captured.
  void check_draws(void* stream) const;

  Stats stats() const;
  void reset_stats();
  std::string describe() const;
  std::string error();
  void abort(const std::string& reason) noexcept;

 private:
  ExactReason reason(const DeviceCallKind& kind, std::int64_t count) const;
  DeviceSlots slots(const DeviceCallKind& kind, const ChunkPlan& plan, void* workspace) const;
  DeviceStepArguments step_arguments(const DeviceCallKind& kind, const DeviceCall& call);
  void check_served(const DeviceCallKind& kind, std::int64_t count) const;
  void check_workspace(Operation operation, const DeviceWorkspace& workspace,
                       std::size_t needed) const;
  void check_capture(void* stream) const;
  /// Whether any number of the call is rounded at random.
  bool draws(const DeviceCallKind& kind, bool quantized) const;
  void throw_if_failed() const;
  void fail(const std::string& words);
  void count_call(Operation operation, ExactReason reason, const OperationStats& counters);

  const std::unique_ptr<DeviceTransport> transport_;
  const std::unique_ptr<DeviceCodec> codec_;
  const std::unique_ptr<DeviceRowCodec> rows_;  // Null where no call has rows.
  const Options options_;
  const std::int64_t segment_numel_;
  DeviceLanes lanes_;

  std::mutex call_mutex_;  // Held while a call is put on its stream; taken before state_mutex_.
  std::uint32_t calls_ = 0;

  mutable std::mutex state_mutex_;
  std::string failure_;  // The first failure's words; empty while there is none.
  Stats stats_{};
};

}  // namespace agoq
