// The collectives that are never quantized.
#include <utility>

#include "backend.h"
#include "tensor_checks.h"

namespace agoq {
namespace {

using c10d::OpType;

Call make_call(Operation operation, OpType type, const char* title, const at::Tensor& tensor,
               std::chrono::milliseconds timeout, std::int64_t root = 0) {
  Call call{operation, type, title, timeout};
  call.data_type = data_type_of(tensor);
  call.count = count_of(tensor);
  call.root = static_cast<int>(root);
  if (tensor.layout() != at::kStrided) call.reason = ExactReason::kLayout;
  return call;
}

}  // namespace

WorkPtr AgoqBackend::allreduce_sparse(TensorList& tensors, const c10d::AllreduceOptions& options) {
  auto call = make_call(Operation::kAllReduce, OpType::_ALLREDUCE_SPARSE, "agoq:all_reduce_sparse",
                        only(tensors, "all_reduce"), options.timeout);
  call.reduce = reduce_op_of(options.reduceOp);
  // NCCL has a function of its own for sparse tensors; Gloo's all-reduce looks at the layout.
  const bool on_cpu = tensors[0].is_cpu();
  return exact(call, tensors, tensors, [=](c10d::Backend& backend) mutable {
    return on_cpu ? backend.allreduce(tensors, options)
                  : backend.allreduce_sparse(tensors, options);
  });
}

WorkPtr AgoqBackend::broadcast(TensorList& tensors, const c10d::BroadcastOptions& options) {
  const auto call = make_call(Operation::kBroadcast, OpType::BROADCAST, "agoq:broadcast",
                              only(tensors, "broadcast"), options.timeout, options.rootRank);
  return exact(call, tensors, tensors,
               [=](c10d::Backend& backend) mutable { return backend.broadcast(tensors, options); });
}

WorkPtr AgoqBackend::reduce(TensorList& tensors, const c10d::ReduceOptions& options) {
  auto call = make_call(Operation::kReduce, OpType::REDUCE, "agoq:reduce", only(tensors, "reduce"),
                        options.timeout, options.rootRank);
  require_reducible(tensors[0], "reduce");
  call.reduce = reduce_op_of(options.reduceOp);
  const bool scale_first = tensors[0].is_cpu() && call.reduce == agoq::ReduceOp::kPremulSum;
  const double factor = scale_first ? factor_of(options.reduceOp) : 1;
  return exact(call, tensors, tensors, [=](c10d::Backend& backend) mutable {
    auto inner_options = options;
    if (scale_first) {
      // Gloo does not know PREMUL_SUM.
      tensors[0].mul_(factor);
      inner_options.reduceOp = c10d::ReduceOp::SUM;
    }
    return backend.reduce(tensors, inner_options);
  });
}

WorkPtr AgoqBackend::gather(std::vector<TensorList>& outputs, TensorList& inputs,
                            const c10d::GatherOptions& options) {
  const auto call = make_call(Operation::kGather, OpType::GATHER, "agoq:gather",
                              only(inputs, "gather"), options.timeout, options.rootRank);
  return exact(call, inputs, flatten(outputs), [=](c10d::Backend& backend) mutable {
    return backend.gather(outputs, inputs, options);
  });
}

WorkPtr AgoqBackend::scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                             const c10d::ScatterOptions& options) {
  const auto call = make_call(Operation::kScatter, OpType::SCATTER, "agoq:scatter",
                              only(outputs, "scatter"), options.timeout, options.rootRank);
  return exact(call, flatten(inputs), outputs, [=](c10d::Backend& backend) mutable {
    return backend.scatter(outputs, inputs, options);
  });
}

WorkPtr AgoqBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                   std::vector<int64_t>& output_splits,
                                   std::vector<int64_t>& input_splits,
                                   const c10d::AllToAllOptions& options) {
  const auto call = make_call(Operation::kAllToAll, OpType::ALLTOALL_BASE, "agoq:all_to_all", input,
                              options.timeout);
  return exact(call, {input}, {output}, [=](c10d::Backend& backend) mutable {
    return backend.alltoall_base(output, input, output_splits, input_splits, options);
  });
}

WorkPtr AgoqBackend::alltoall(TensorList& outputs, TensorList& inputs,
                              const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "agoq: all_to_all takes one tensor for each rank, got none.");
  auto call = make_call(Operation::kAllToAll, OpType::ALLTOALL, "agoq:all_to_all", inputs[0],
                        options.timeout);
  call.count = 0;
  for (const auto& input : inputs) call.count += count_of(input);
  return exact(call, inputs, outputs, [=](c10d::Backend& backend) mutable {
    return backend.alltoall(outputs, inputs, options);
  });
}

WorkPtr AgoqBackend::barrier(const c10d::BarrierOptions& options) {
  const Call call{Operation::kBarrier, OpType::BARRIER, "agoq:barrier", options.timeout};
  const bool on_cuda = (options.device && !options.device->is_cpu()) || !options.device_ids.empty();
  if (on_cuda && inner_.count(at::kCUDA)) return inner(at::kCUDA)->barrier(options);
  // Checking a call hears from every rank, and so is a barrier already.
  return enqueue(call, {}, {}, [this, call] { run_exact(call, nullptr); });
}

void AgoqBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  // On the worker, since Gloo numbers its collectives in the order they are issued; without a
  // check of the call, since the missing ranks are what it is there to find.
  const Call call{Operation::kBarrier, OpType::BARRIER, "agoq:monitored_barrier", options.timeout};
  enqueue(call, {}, {}, [this, options, wait_all_ranks] {
    inner(at::kCPU)->monitoredBarrier(options, wait_all_ranks);
  })->wait(kNoTimeout);
}

}  // namespace agoq
