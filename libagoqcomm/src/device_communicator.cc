#include "agoqcomm/device_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "agoqcomm/error.h"
#include "call_arguments.h"
#include "collective/device_collectives.h"
#include "collective/exact_reduce.h"
#include "device_communicator_impl.h"

namespace agoq {
namespace {

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

DeviceCommunicator::DeviceCommunicator(std::unique_ptr<DeviceTransport> transport,
                                       std::unique_ptr<DeviceCodec> codec, DeviceRuntime& runtime,
                                       const Options& options, std::int64_t segment_numel,
                                       std::unique_ptr<DeviceRowCodec> rows) {
  const auto require = [](bool good, const std::string& what) {
    if (!good) throw Error(ErrorCode::kInvalidArgument, "DeviceCommunicator: " + what);
  };
  options.validate();
  require(transport != nullptr, "the transport is null; make one, e.g. with make_nccl_transport()");
  require(codec != nullptr, "the codec is null; make one, e.g. a CudaCodec");
  require(codec->format() == options.format, "the codec's format is " + codec->format().name() +
                                                 ", that of the options " + options.format.name());
  require(rows == nullptr || rows->format() == options.format,
          "the format of the codec of rows is " + (rows == nullptr ? "" : rows->format().name()) +
              ", that of the options " + options.format.name());
  require(segment_numel >= 0, "segment_numel must be 0 or more");
  int pieces = codec->max_pieces();
  if (rows != nullptr) pieces = std::min(pieces, rows->max_pieces());
  if (transport->size() > pieces) {
    throw Error(ErrorCode::kUnsupported, "a group of " + std::to_string(transport->size()) +
                                             " ranks; the codec sums up to " +
                                             std::to_string(pieces) + " pieces");
  }
  impl_ = std::make_unique<Impl>(std::move(transport), std::move(codec), runtime, options,
                                 segment_numel, std::move(rows));
}

DeviceCommunicator::~DeviceCommunicator() = default;

int DeviceCommunicator::rank() const { return impl_->rank(); }
int DeviceCommunicator::size() const { return impl_->size(); }
const Options& DeviceCommunicator::options() const { return impl_->options(); }

bool DeviceCommunicator::serves(Operation operation, DataType type, ReduceOp op, std::int64_t count,
                                std::optional<bool> quantize) const {
  return impl_->serves({operation, type, op, quantize}, count);
}

std::size_t DeviceCommunicator::all_reduce_workspace(std::int64_t count, DataType type, ReduceOp op,
                                                     std::optional<bool> quantize) const {
  check_count(Operation::kAllReduce, count);
  return impl_->workspace({Operation::kAllReduce, type, op, quantize}, impl_->balanced(count));
}

std::size_t DeviceCommunicator::reduce_scatter_workspace(std::span<const std::int64_t> counts,
                                                         DataType type, ReduceOp op,
                                                         std::optional<bool> quantize) const {
  check_counts(Operation::kReduceScatter, counts, size());
  return impl_->workspace({Operation::kReduceScatter, type, op, quantize}, impl_->given(counts));
}

std::size_t DeviceCommunicator::all_gather_workspace(std::span<const std::int64_t> counts,
                                                     DataType type,
                                                     std::optional<bool> quantize) const {
  check_counts(Operation::kAllGather, counts, size());
  return impl_->workspace({Operation::kAllGather, type, ReduceOp::kNone, quantize},
                          impl_->given(counts));
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
      {kOperation, type, op, call.quantize}, plan, call,
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
      {kOperation, type, op, call.quantize}, impl_->given(counts), call,
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
      {kOperation, type, ReduceOp::kNone, call.quantize}, impl_->given(counts), call,
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
