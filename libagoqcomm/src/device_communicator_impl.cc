#include "device_communicator_impl.h"

#include <algorithm>
#include <utility>

#include "agoqcomm/error.h"
#include "agoqcomm/version.h"
#include "agoqcomm/wire_layout.h"
#include "call_choice.h"
#include "collective/device_row_steps.h"
#include "collective/device_slots.h"

namespace agoq {
namespace {

// Elements of all chunks that one step moves, unless the caller says otherwise: its kernels fill a
// GPU, and the workspace stays at some 25 MB for any number of ranks that makes no shorter
// segments than the shortest.
constexpr std::int64_t kStepNumel = std::int64_t{1} << 22;
constexpr std::int64_t kShortestSegment = std::int64_t{1} << 17;

std::int64_t default_segment(int size) { return std::max(kStepNumel / size, kShortestSegment); }

}  // namespace

DeviceCommunicator::Impl::Impl(std::unique_ptr<DeviceTransport> transport,
                               std::unique_ptr<DeviceCodec> codec, DeviceRuntime& runtime,
                               const Options& options, std::int64_t segment_numel,
                               std::unique_ptr<DeviceRowCodec> rows)
    : transport_(std::move(transport)),
      codec_(std::move(codec)),
      rows_(std::move(rows)),
      options_(options),
      segment_numel_(segment_numel > 0 ? segment_numel : default_segment(transport_->size())),
      lanes_(runtime) {}

const DeviceRowCodec& DeviceCommunicator::Impl::row_codec() const {
  if (rows_ != nullptr) return *rows_;
  throw Error(ErrorCode::kUnsupported,
              "this DeviceCommunicator has no codec of rows: give its constructor one, e.g. a "
              "CudaRowCodec");
}

ChunkPlan DeviceCommunicator::Impl::given_rows(std::span<const std::int64_t> counts,
                                               std::int64_t width) const {
  return ChunkPlan::given(counts, kRowsOfSegment * width, segment_numel_);
}

ExactReason DeviceCommunicator::Impl::reason(const DeviceCallKind& kind, std::int64_t count) const {
  // What the caller has encoded cannot be anything else any more.
  if (kind.rows != nullptr && kind.rows->encoded != nullptr) return ExactReason::kNone;
  return why_exact(kind.operation, kind.type, kind.op, count, size(),
                   chosen(options_, kind.quantize));
}

bool DeviceCommunicator::Impl::serves(const DeviceCallKind& kind, std::int64_t count) const {
  switch (reason(kind, count)) {
    case ExactReason::kNone:
      return true;
    case ExactReason::kOperation:
      return false;
    case ExactReason::kOneRank:
      return kind.op != ReduceOp::kPremulSum;  // All others leave one rank's numbers as they are.
    default:
      return kind.operation == Operation::kAllGather;
  }
}

DeviceSlots DeviceCommunicator::Impl::slots(const DeviceCallKind& kind, const ChunkPlan& plan,
                                            void* workspace) const {
  const std::int64_t longest = plan.segment_numel();
  const std::int64_t bytes =
      kind.rows == nullptr ? WireLayout(options_.format, longest).total_bytes()
                           : RowLayout(options_.format, kind.rows->shape(longest)).total_bytes();
  return {kind.operation, plan, bytes, static_cast<std::byte*>(workspace)};
}

std::size_t DeviceCommunicator::Impl::workspace(const DeviceCallKind& kind,
                                                const ChunkPlan& plan) const {
  if (reason(kind, plan.total()) != ExactReason::kNone) return 0;
  return slots(kind, plan, nullptr).bytes();
}

DeviceStepArguments DeviceCommunicator::Impl::step_arguments(const DeviceCallKind& kind,
                                                             const DeviceCall& call) {
  DeviceStepArguments arguments;
  arguments.type = kind.type;
  arguments.stream = call.stream;
  if (kind.op == ReduceOp::kAvg) arguments.factor = 1.0f / static_cast<float>(size());
  if (kind.op == ReduceOp::kPremulSum) arguments.factor = call.factor;
  arguments.rounding.stochastic = options_.stochastic_rounding;
  arguments.rounding.seed = options_.seed;
  arguments.rounding.call = calls_++;
  arguments.rounding.rank = static_cast<std::uint32_t>(rank());
  return arguments;
}

void DeviceCommunicator::Impl::run(const DeviceCallKind& kind, const ChunkPlan& plan,
                                   const DeviceCall& call, const Body& quantized,
                                   const Body& exact) {
  const ExactReason why = reason(kind, plan.total());
  const bool is_quantized = why == ExactReason::kNone;
  check_served(kind, plan.total());
  const DeviceSlots slots = this->slots(kind, plan, call.workspace.data);
  if (is_quantized) check_workspace(kind.operation, call.workspace, slots.bytes());

  const std::lock_guard turn(call_mutex_);
  throw_if_failed();
  if (!transport_->can_be_captured()) check_capture(call.stream);
  if (draws(kind, is_quantized)) check_draws(call.stream);
  OperationStats counters;
  counters.elements = plan.total();
  const DeviceGroup group{*transport_, *codec_, lanes_};
  const DeviceStepArguments arguments = step_arguments(kind, call);
  const Body& body = is_quantized ? quantized : exact;
  try {
    if (kind.rows == nullptr) {
      DeviceSteps steps(group, arguments, plan, slots, counters);
      body(steps);
    } else {
      DeviceRowSteps steps(group, arguments, plan, slots, counters, row_codec(), *kind.rows);
      body(steps);
    }
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
  count_call(kind.operation, why, counters);
}

void DeviceCommunicator::Impl::copy(void* to, const void* from, std::int64_t count, DataType type,
                                    void* stream) {
  if (count == 0 || to == from) return;
  lanes_.runtime().copy(to, from, static_cast<std::size_t>(count) * size_of(type), stream);
}

void DeviceCommunicator::Impl::count_call(Operation operation, ExactReason reason,
                                          const OperationStats& counters) {
  const std::lock_guard lock(state_mutex_);
  OperationStats& sum = of(stats_, operation);
  if (reason == ExactReason::kNone) {
    ++sum.quantized_calls;
  } else {
    ++sum.exact_calls;
    ++sum.exact_by_reason[static_cast<std::size_t>(reason)];
  }
  sum.elements += counters.elements;
  sum.wire_bytes += counters.wire_bytes;
  sum.exact_bytes += counters.exact_bytes;
}

Stats DeviceCommunicator::Impl::stats() const {
  const std::lock_guard lock(state_mutex_);
  return stats_;
}

void DeviceCommunicator::Impl::reset_stats() {
  const std::lock_guard lock(state_mutex_);
  stats_ = {};
}

void DeviceCommunicator::Impl::check_served(const DeviceCallKind& kind, std::int64_t count) const {
  if (serves(kind, count)) return;
  throw Error(ErrorCode::kUnsupported,
              std::string(to_string(kind.operation)) + " (" + std::string(to_string(kind.op)) +
                  ") of " + std::to_string(count) + " elements of " +
                  std::string(to_string(kind.type)) + " is not quantized (" +
                  std::string(to_string(reason(kind, count))) +
                  "), and device memory is summed here in quantized calls only: give it to the "
                  "library that moves the bytes, e.g. NCCL; serves() tells beforehand");
}

void DeviceCommunicator::Impl::check_workspace(Operation operation,
                                               const DeviceWorkspace& workspace,
                                               std::size_t needed) const {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(workspace.data) % kSlotAlignment == 0;
  if (workspace.data != nullptr && is_aligned && workspace.bytes >= needed) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(to_string(operation)) + ": the workspace has " +
                  std::to_string(workspace.data == nullptr ? 0 : workspace.bytes) +
                  " bytes; this call needs " + std::to_string(needed) + ", aligned to " +
                  std::to_string(kSlotAlignment) + ": ask the function of its name");
}

bool DeviceCommunicator::Impl::draws(const DeviceCallKind& kind, bool quantized) const {
  const bool encodes = quantized && (kind.rows == nullptr || kind.rows->encoded == nullptr);
  return (encodes && options_.stochastic_rounding) ||
         (kind.rows != nullptr && kind.rows->epilogue.draws());
}

void DeviceCommunicator::Impl::check_draws(void* stream) const {
  if (!lanes_.runtime().is_capturing(stream)) return;
  throw Error(ErrorCode::kUnsupported,
              "a call with stochastic rounding cannot be captured in a graph: every replay would "
              "round by the same call number; set Options::stochastic_rounding, or where an "
              "epilogue encodes its Rounding::stochastic, to false");
}

void DeviceCommunicator::Impl::check_capture(void* stream) const {
  if (!lanes_.runtime().is_capturing(stream)) return;
  throw Error(ErrorCode::kUnsupported, "the transport " + std::string(transport_->name()) +
                                           " cannot be captured in a graph: its host part would "
                                           "not be replayed");
}

void DeviceCommunicator::Impl::throw_if_failed() const {
  const std::lock_guard lock(state_mutex_);
  if (failure_.empty()) return;
  throw Error(ErrorCode::kAborted,
              "this group has failed and must be made anew; the first failure was: " + failure_);
}

void DeviceCommunicator::Impl::fail(const std::string& words) {
  {
    const std::lock_guard lock(state_mutex_);
    if (failure_.empty()) failure_ = words;
  }
  transport_->abort(words);
}

std::string DeviceCommunicator::Impl::describe() const {
  const DeviceCallKind all_reduce{Operation::kAllReduce, DataType::kFloat32, ReduceOp::kSum, true};
  return "agoqcomm " + std::string(version()) + ", rank " + std::to_string(rank()) + " of " +
         std::to_string(size()) + ", device transport " + std::string(transport_->name()) +
         (transport_->can_be_captured() ? "" : " (not for graphs)") + "\nformat " +
         options_.format.name() + ", " +
         (options_.stochastic_rounding ? "stochastic rounding" : "rounding half to even") +
         "; segments of " + std::to_string(segment_numel_) +
         " elements, workspace of an all-reduce up to " +
         std::to_string(slots(all_reduce, balanced(2 * segment_numel_ * size()), nullptr).bytes()) +
         " bytes\n";
}

std::string DeviceCommunicator::Impl::error() {
  {
    const std::lock_guard lock(state_mutex_);
    if (!failure_.empty()) return failure_;
  }
  return transport_->error();
}

void DeviceCommunicator::Impl::abort(const std::string& reason) noexcept {
  try {
    fail("it was aborted: " + reason);
  } catch (...) {
    // Out of memory for the words: the transport still ends the call.
    transport_->abort(reason);
  }
}

}  // namespace agoq
