// A framework that has an NCCL communicator and a stream of its own averages gradients in about one
// byte an element, and joins two blocks of a transformer that split the sequence. Needs no header
// of NCCL or CUDA.
#include <agoqcomm/cuda_codec.h>
#include <agoqcomm/cuda_row_codec.h>
#include <agoqcomm/device_communicator.h>
#include <agoqcomm/error.h>
#include <agoqcomm/nccl.h>

#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <utility>

namespace {

/// `communicator` is an ncclComm_t, and stays the framework's.
std::unique_ptr<agoq::DeviceCommunicator> make_group(void* communicator,
                                                     const agoq::Options& options) {
  std::unique_ptr<agoq::DeviceTransport> transport = agoq::make_nccl_transport(communicator);
  return std::make_unique<agoq::DeviceCommunicator>(
      std::move(transport), std::make_unique<agoq::CudaCodec>(options.format), agoq::cuda_runtime(),
      options, 0, std::make_unique<agoq::CudaRowCodec>(options.format));
}

/// Puts the all-reduce on `stream`, a cudaStream_t, and returns. `allocate` is the framework's own:
/// its memory is free again, in the stream's order, as soon as this returns. False where the call
/// is one that NCCL must serve itself.
bool average(agoq::DeviceCommunicator& group, void* gradients, std::int64_t count, void* stream,
             const std::function<void*(std::size_t)>& allocate) {
  constexpr agoq::DataType kType = agoq::DataType::kBfloat16;
  constexpr agoq::ReduceOp kOp = agoq::ReduceOp::kAvg;
  if (!group.serves(agoq::Operation::kAllReduce, kType, kOp, count)) return false;
  agoq::DeviceCall call;
  call.stream = stream;
  call.workspace.bytes = group.all_reduce_workspace(count, kType, kOp);
  call.workspace.data = allocate(call.workspace.bytes);
  group.all_reduce(gradients, gradients, count, kType, kOp, call);
  return true;
}

/// Sums this rank's rows of `in` over the ranks, adds `residual` in place and norms the result; the
/// pass that does so also encodes what the next block gathers from all ranks.
void join_blocks(agoq::DeviceCommunicator& group, std::span<const void* const> in,
                 std::span<const std::int64_t> rows, std::int64_t width, void* residual,
                 const agoq::RowEpilogue& epilogue, std::span<void* const> out,
                 const agoq::DeviceCall& call) {
  constexpr agoq::DataType kType = agoq::DataType::kBfloat16;
  group.reduce_scatter_rows(in, rows, width, residual, kType, agoq::ReduceOp::kSum, epilogue, call);
  group.all_gather_encoded_rows(epilogue.encoded.data, out, rows, width, kType, call);
}

}  // namespace

int main() {
  try {
    const auto group = make_group(nullptr, agoq::Options{});
    average(*group, nullptr, 0, nullptr, [](std::size_t) { return nullptr; });
    join_blocks(*group, {}, {}, 1, nullptr, {}, {}, {});
  } catch (const agoq::Error& error) {
    // There is no communicator here; what the library says to that is all that can be seen.
    std::cout << error.what() << '\n';
    return error.code() == agoq::ErrorCode::kInvalidArgument ? 0 : 1;
  }
  return 1;
}
