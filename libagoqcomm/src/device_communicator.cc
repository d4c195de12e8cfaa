#include "agoqcomm/device_communicator.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "agoqcomm/version.h"
#include "call_arguments.h"
#include "collective/chunk_plan.h"
#include "collective/device_collectives.h"
#include "collective/device_lanes.h"
#include "collective/device_slots.h"
#include "collective/device_steps.h"
#include "collective/exact_reduce.h"

namespace agoq {
namespace {

// Elements of all chunks that one step moves, unless the caller says otherwise: its kernels fill a
// GPU, and the workspace stays at some 25 MB for any number of ranks that makes no shorter
// segments than the shortest.
constexpr std::int64_t kStepNumel = std::int64_t{1} << 22;
constexpr std::int64_t kShortestSegment = std::int64_t{1} << 17;

std::int64_t default_segment(int size) { return std::max(kStepNumel / size, kShortestSegment); }

// Every chunk's start in a buffer that holds them one after another.
template <typename Byte>
auto chunks_of(Byte* buffer, const ChunkPlan& plan, DataType type) {
  using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;
  std::vector<Void*> chunks;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    chunks.push_back(buffer + plan.chunk_offset(rank) * static_cast<std::int64_t>(size_of(type)));
  }
  return chunks;
}

}  // namespace

class DeviceCommunicator::Impl {
 public:
  Impl(std::unique_ptr<DeviceTransport> transport, std::unique_ptr<DeviceCodec> codec,
       DeviceRuntime& runtime, const Options& options, std::int64_t segment_numel)
      : transport_(std::move(transport)),
        codec_(std::move(codec)),
        options_(options),
        segment_numel_(segment_numel > 0 ? segment_numel : default_segment(transport_->size())),
        lanes_(runtime) {}

  int rank() const { return transport_->rank(); }
  int size() const { return transport_->size(); }
  const Options& options() const { return options_; }

  ExactReason reason(Operation operation, DataType type, ReduceOp op, std::int64_t count) const {
    return why_exact(operation, type, op, count, size(), options_);
  }
  bool serves(Operation operation, DataType type, ReduceOp op, std::int64_t count) const;

  ChunkPlan balanced(std::int64_t count) const {
    return ChunkPlan::balanced(count, size(), options_.format.block, segment_numel_);
  }
  ChunkPlan given(std::span<const std::int64_t> counts) const {
    return ChunkPlan::given(counts, options_.format.block, segment_numel_);
  }
  std::size_t workspace(Operation operation, DataType type, ReduceOp op,
                        const ChunkPlan& plan) const {
    if (reason(operation, type, op, plan.total()) != ExactReason::kNone) return 0;
    return DeviceSlots(operation, plan, options_.format, nullptr).bytes();
  }

  /// Runs quantized(steps) or exact(steps) as why_exact() says, in turn with other calls.
  template <typename Quantized, typename Exact>
  void run(Operation operation, DataType type, ReduceOp op, const ChunkPlan& plan,
           const DeviceCall& call, Quantized&& quantized, Exact&& exact);

  void copy(void* to, const void* from, std::int64_t count, DataType type, void* stream) {
    if (count == 0 || to == from) return;
    lanes_.runtime().copy(to, from, static_cast<std::size_t>(count) * size_of(type), stream);
  }

  Stats stats() const {
    const std::lock_guard lock(state_mutex_);
    return stats_;
  }
  void reset_stats() {
    const std::lock_guard lock(state_mutex_);
    stats_ = {};
  }
  std::string describe() const;
  std::string error();
  void abort(const std::string& reason) noexcept;

 private:
  void check_served(Operation operation, DataType type, ReduceOp op, std::int64_t count) const;
  void check_workspace(Operation operation, const DeviceWorkspace& workspace,
                       std::size_t needed) const;
  void check_capture(void* stream, bool quantized) const;
  void throw_if_failed() const;
  void fail(const std::string& words);
  void count_call(Operation operation, ExactReason reason, OperationStats& counters);

  const std::unique_ptr<DeviceTransport> transport_;
  const std::unique_ptr<DeviceCodec> codec_;
  const Options options_;
  const std::int64_t segment_numel_;
  DeviceLanes lanes_;

  std::mutex call_mutex_;  // Held while a call is put on its stream; taken before state_mutex_.
  std::uint32_t calls_ = 0;

  mutable std::mutex state_mutex_;
  std::string failure_;  // The first failure's words; empty while there is none.
  Stats stats_{};
};

bool DeviceCommunicator::Impl::serves(Operation operation, DataType type, ReduceOp op,
                                      std::int64_t count) const {
  switch (reason(operation, type, op, count)) {
    case ExactReason::kNone:
      return true;
    case ExactReason::kOperation:
      return false;
    case ExactReason::kOneRank:
      return op != ReduceOp::kPremulSum;  // All others leave one rank's numbers as they are.
    default:
      return operation == Operation::kAllGather;
  }
}

template <typename Quantized, typename Exact>
void DeviceCommunicator::Impl::run(Operation operation, DataType type, ReduceOp op,
                                   const ChunkPlan& plan, const DeviceCall& call,
                                   Quantized&& quantized, Exact&& exact) {
  const ExactReason why = reason(operation, type, op, plan.total());
  const bool is_quantized = why == ExactReason::kNone;
  check_served(operation, type, op, plan.total());
  const DeviceSlots slots(operation, plan, options_.format,
                          static_cast<std::byte*>(call.workspace.data));
  if (is_quantized) check_workspace(operation, call.workspace, slots.bytes());

  const std::lock_guard turn(call_mutex_);
  throw_if_failed();
  check_capture(call.stream, is_quantized);
  OperationStats counters;
  counters.elements = plan.total();
  DeviceStepArguments arguments;
  arguments.type = type;
  arguments.stream = call.stream;
  if (op == ReduceOp::kAvg) arguments.factor = 1.0f / static_cast<float>(size());
  if (op == ReduceOp::kPremulSum) arguments.factor = call.factor;
  arguments.rounding.stochastic = options_.stochastic_rounding;
  arguments.rounding.seed = options_.seed;
  arguments.rounding.call = calls_++;
  arguments.rounding.rank = static_cast<std::uint32_t>(rank());
  const DeviceGroup group{*transport_, *codec_, lanes_};
  DeviceSteps steps(group, arguments, plan, slots, counters);
  try {
    is_quantized ? quantized(steps) : exact(steps);
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  }
  count_call(operation, why, counters);
}

void DeviceCommunicator::Impl::count_call(Operation operation, ExactReason reason,
                                          OperationStats& counters) {
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

void DeviceCommunicator::Impl::check_served(Operation operation, DataType type, ReduceOp op,
                                            std::int64_t count) const {
  if (serves(operation, type, op, count)) return;
  throw Error(ErrorCode::kUnsupported,
              std::string(to_string(operation)) + " (" + std::string(to_string(op)) + ") of " +
                  std::to_string(count) + " elements of " + std::string(to_string(type)) +
                  " is not quantized (" +
                  std::string(to_string(reason(operation, type, op, count))) +
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

void DeviceCommunicator::Impl::check_capture(void* stream, bool quantized) const {
  const bool stochastic = quantized && options_.stochastic_rounding;
  if (transport_->can_be_captured() && !stochastic) return;
  if (!lanes_.runtime().is_capturing(stream)) return;
  if (stochastic) {
    throw Error(ErrorCode::kUnsupported,
                "a call with stochastic rounding cannot be captured in a graph: every replay would "
                "round by the same call number; set Options::stochastic_rounding to false");
  }
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
  return "agoqcomm " + std::string(version()) + ", rank " + std::to_string(rank()) + " of " +
         std::to_string(size()) + ", device transport " + std::string(transport_->name()) +
         (transport_->can_be_captured() ? "" : " (not for graphs)") + "\nformat " +
         options_.format.name() + ", " +
         (options_.stochastic_rounding ? "stochastic rounding" : "rounding half to even") +
         "; segments of " + std::to_string(segment_numel_) +
         " elements, workspace of an all-reduce up to " +
         std::to_string(DeviceSlots(Operation::kAllReduce, balanced(2 * segment_numel_ * size()),
                                    options_.format, nullptr)
                            .bytes()) +
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

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<DeviceTransport> transport,
                                       std::unique_ptr<DeviceCodec> codec, DeviceRuntime& runtime,
                                       const Options& options, std::int64_t segment_numel) {
  const auto require = [](bool good, const std::string& what) {
    if (!good) throw Error(ErrorCode::kInvalidArgument, "DeviceCommunicator: " + what);
  };
  options.validate();
  require(transport != nullptr, "the transport is null; make one, e.g. with make_nccl_transport()");
  require(codec != nullptr, "the codec is null; make one, e.g. a CudaCodec");
  require(codec->format() == options.format, "the codec's format is " + codec->format().name() +
                                                 ", that of the options " + options.format.name());
  require(segment_numel >= 0, "segment_numel must be 0 or more");
  if (transport->size() > codec->max_pieces()) {
    throw Error(ErrorCode::kUnsupported, "a group of " + std::to_string(transport->size()) +
                                             " ranks; the codec sums up to " +
                                             std::to_string(codec->max_pieces()) + " pieces");
  }
  impl_ = std::make_unique<Impl>(std::move(transport), std::move(codec), runtime, options,
                                 segment_numel);
}

DeviceCommunicator::~DeviceCommunicator() = default;

int DeviceCommunicator::rank() const { return impl_->rank(); }
int DeviceCommunicator::size() const { return impl_->size(); }
const Options& DeviceCommunicator::options() const { return impl_->options(); }

bool DeviceCommunicator::serves(Operation operation, DataType type, ReduceOp op,
                                std::int64_t count) const {
  return impl_->serves(operation, type, op, count);
}

std::size_t DeviceCommunicator::all_reduce_workspace(std::int64_t count, DataType type,
                                                     ReduceOp op) const {
  check_count(Operation::kAllReduce, count);
  return impl_->workspace(Operation::kAllReduce, type, op, impl_->balanced(count));
}

std::size_t DeviceCommunicator::reduce_scatter_workspace(std::span<const std::int64_t> counts,
                                                         DataType type, ReduceOp op) const {
  check_counts(Operation::kReduceScatter, counts, size());
  return impl_->workspace(Operation::kReduceScatter, type, op, impl_->given(counts));
}

std::size_t DeviceCommunicator::all_gather_workspace(std::span<const std::int64_t> counts,
                                                     DataType type) const {
  check_counts(Operation::kAllGather, counts, size());
  return impl_->workspace(Operation::kAllGather, type, ReduceOp::kNone, impl_->given(counts));
}

void DeviceCommunicator::all_reduce(const void* in, void* out, std::int64_t count, DataType type,
                                    ReduceOp op, const DeviceCall& call) {
  constexpr Operation kOperation = Operation::kAllReduce;
  check_count(kOperation, count);
  check_memory(kOperation, in, count, "in");
  check_memory(kOperation, out, count, "out");
  check_reducible(type, op);
  const ChunkPlan plan = impl_->balanced(count);
  const auto ins = chunks_of(static_cast<const std::byte*>(in), plan, type);
  const auto outs = chunks_of(static_cast<std::byte*>(out), plan, type);
  impl_->run(
      kOperation, type, op, plan, call,
      [&](DeviceSteps& steps) { device_all_reduce(steps, ins, ins[rank()], outs, outs[rank()]); },
      [&](DeviceSteps&) { impl_->copy(out, in, count, type, call.stream); });
}

void DeviceCommunicator::reduce_scatter(std::span<const void* const> in,
                                        std::span<const std::int64_t> counts, void* out,
                                        DataType type, ReduceOp op, const DeviceCall& call) {
  constexpr Operation kOperation = Operation::kReduceScatter;
  check_chunks(kOperation, in, counts, size(), "in");
  check_memory(kOperation, out, counts[rank()], "out");
  check_reducible(type, op);
  impl_->run(
      kOperation, type, op, impl_->given(counts), call,
      [&](DeviceSteps& steps) { device_reduce_scatter(steps, in, in[rank()], out); },
      [&](DeviceSteps&) { impl_->copy(out, in[rank()], counts[rank()], type, call.stream); });
}

void DeviceCommunicator::all_gather(const void* in, std::span<void* const> out,
                                    std::span<const std::int64_t> counts, DataType type,
                                    const DeviceCall& call) {
  constexpr Operation kOperation = Operation::kAllGather;
  check_chunks(kOperation, as_const(out), counts, size(), "out");
  check_memory(kOperation, in, counts[rank()], "in");
  impl_->run(
      kOperation, type, ReduceOp::kNone, impl_->given(counts), call,
      [&](DeviceSteps& steps) { device_all_gather(steps, in, out); },
      [&](DeviceSteps& steps) {
        if (size() > 1) device_exact_all_gather(steps, in, out);
        impl_->copy(out[rank()], in, counts[rank()], type, call.stream);
      });
}

Stats DeviceCommunicator::stats() const { return impl_->stats(); }
void DeviceCommunicator::reset_stats() { impl_->reset_stats(); }
std::string DeviceCommunicator::describe() const { return impl_->describe(); }
std::string DeviceCommunicator::error() { return impl_->error(); }
void DeviceCommunicator::abort(const std::string& reason) noexcept { impl_->abort(reason); }

}  // namespace agoq
