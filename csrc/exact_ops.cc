// The collectives that are never quantized.
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <utility>

#include "backend.h"
#include "row_major.h"
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

void require_equal_types(const at::Tensor& output, const at::Tensor& input) {
  TORCH_CHECK_TYPE(output.scalar_type() == input.scalar_type(),
                   "agoq: all_to_all got an input and an output of different types, ",
                   input.scalar_type(), " and ", output.scalar_type(), "; they must be equal.");
}

/// Elements for each rank of a tensor that is split along its first dimension, evenly where the
/// caller states no splits.
std::vector<std::int64_t> split_counts(const at::Tensor& tensor,
                                       const std::vector<std::int64_t>& splits, int size) {
  c10d::checkSplitSizes(splits, tensor, size);
  const auto rows = tensor.size(0);
  const auto per_row = rows == 0 ? 0 : count_of(tensor) / rows;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size), rows / size * per_row);
  for (std::size_t rank = 0; rank < splits.size(); ++rank) counts[rank] = splits[rank] * per_row;
  return counts;
}

/// Where each rank's part starts.
template <typename Pointer>
std::vector<Pointer> starts_of(const RowMajor& rows, DataType type,
                               const std::vector<std::int64_t>& counts) {
  std::vector<Pointer> parts;
  auto* next = static_cast<std::byte*>(rows.data());
  for (const auto count : counts) {
    parts.push_back(next);
    next += count * static_cast<std::int64_t>(size_of(type));
  }
  return parts;
}

}  // namespace

TensorList AgoqBackend::list_of_root(std::vector<TensorList>& lists, const at::Tensor& own,
                                     const Call& call, const char* name) const {
  const auto operation = to_string(call.operation);
  if (rank_ != call.root) {
    TORCH_CHECK_VALUE(flatten(lists).empty(), "agoq: ", operation, " takes ", name,
                      " on the root, rank ", call.root, ", but rank ", rank_, " gave some too.");
    return {};
  }
  TORCH_CHECK_VALUE(lists.size() == 1, "agoq: ", operation, " takes one list of ", name,
                    " on the root, got ", lists.size(), ".");
  require_equal_list(lists[0], own, size_, operation);
  return lists[0];
}

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
  const auto tensor = only(tensors, "broadcast");
  const auto call = make_call(Operation::kBroadcast, OpType::BROADCAST, "agoq:broadcast", tensor,
                              options.timeout, options.rootRank);
  if (!core_serves(call, tensor)) {
    return exact(call, tensors, tensors, [=](c10d::Backend& backend) mutable {
      return backend.broadcast(tensors, options);
    });
  }
  return enqueue(call, options.asyncOp, tensors, tensors, [=, this] {
    const RowMajor rows(tensor);
    communicator_->broadcast(rows.data(), call.count, call.data_type, call.root,
                             core_options(call));
    rows.write_back();
  });
}

WorkPtr AgoqBackend::reduce(TensorList& tensors, const c10d::ReduceOptions& options) {
  const auto tensor = only(tensors, "reduce");
  auto call = make_call(Operation::kReduce, OpType::REDUCE, "agoq:reduce", tensor, options.timeout,
                        options.rootRank);
  require_reducible(tensor, "reduce");
  call.reduce = reduce_op_of(options.reduceOp);
  if (tensor.is_cpu()) call.factor = factor_of(options.reduceOp);
  if (!core_serves(call, tensor)) {
    const bool scale_first = tensor.is_cpu() && call.reduce == agoq::ReduceOp::kPremulSum;
    return exact(call, tensors, tensors, [=](c10d::Backend& backend) mutable {
      auto inner_options = options;
      if (scale_first) {
        // Gloo does not know PREMUL_SUM.
        tensors[0].mul_(call.factor);
        inner_options.reduceOp = c10d::ReduceOp::SUM;
      }
      return backend.reduce(tensors, inner_options);
    });
  }
  return enqueue(call, options.asyncOp, tensors, tensors, [=, this] {
    const RowMajor rows(tensor);
    communicator_->reduce(rows.data(), rows.data(), call.count, call.data_type, call.reduce,
                          call.root, core_options(call));
    if (rank_ == call.root) rows.write_back();
  });
}

WorkPtr AgoqBackend::gather(std::vector<TensorList>& outputs, TensorList& inputs,
                            const c10d::GatherOptions& options) {
  const auto input = only(inputs, "gather");
  auto call = make_call(Operation::kGather, OpType::GATHER, "agoq:gather", input, options.timeout,
                        options.rootRank);
  if (!core_serves(call, input)) {
    return exact(call, inputs, flatten(outputs), [=](c10d::Backend& backend) mutable {
      return backend.gather(outputs, inputs, options);
    });
  }
  const auto list = list_of_root(outputs, input, call, "outputs");
  return enqueue(call, options.asyncOp, inputs, list, [=, this] {
    const RowMajor rows(input);
    const RowMajorList chunks(list);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), call.count);
    communicator_->gather(rows.data(), chunks.pointers<void*>(), counts, call.data_type, call.root,
                          core_options(call));
    chunks.write_back();
  });
}

WorkPtr AgoqBackend::scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                             const c10d::ScatterOptions& options) {
  const auto output = only(outputs, "scatter");
  const auto call = make_call(Operation::kScatter, OpType::SCATTER, "agoq:scatter", output,
                              options.timeout, options.rootRank);
  if (!core_serves(call, output)) {
    return exact(call, flatten(inputs), outputs, [=](c10d::Backend& backend) mutable {
      return backend.scatter(outputs, inputs, options);
    });
  }
  const auto list = list_of_root(inputs, output, call, "inputs");
  return enqueue(call, options.asyncOp, list, outputs, [=, this] {
    const RowMajor rows(output);
    const RowMajorList chunks(list);
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), call.count);
    communicator_->scatter(chunks.pointers<const void*>(), counts, rows.data(), call.data_type,
                           call.root, core_options(call));
    rows.write_back();
  });
}

WorkPtr AgoqBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                   std::vector<int64_t>& output_splits,
                                   std::vector<int64_t>& input_splits,
                                   const c10d::AllToAllOptions& options) {
  const auto call = make_call(Operation::kAllToAll, OpType::ALLTOALL_BASE, "agoq:all_to_all", input,
                              options.timeout);
  if (!core_serves(call, input)) {
    return exact(call, {input}, {output}, [=](c10d::Backend& backend) mutable {
      return backend.alltoall_base(output, input, output_splits, input_splits, options);
    });
  }
  require_equal_types(output, input);
  const auto in_counts = split_counts(input, input_splits, size_);
  const auto out_counts = split_counts(output, output_splits, size_);
  return enqueue(call, options.asyncOp, {input}, {output}, [=, this] {
    const RowMajor in(input), out(output);
    communicator_->all_to_all(starts_of<const void*>(in, call.data_type, in_counts), in_counts,
                              starts_of<void*>(out, call.data_type, out_counts), out_counts,
                              call.data_type, core_options(call));
    out.write_back();
  });
}

WorkPtr AgoqBackend::alltoall(TensorList& outputs, TensorList& inputs,
                              const c10d::AllToAllOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "agoq: all_to_all takes one tensor for each rank, got none.");
  auto call = make_call(Operation::kAllToAll, OpType::ALLTOALL, "agoq:all_to_all", inputs[0],
                        options.timeout);
  call.count = 0;
  for (const auto& input : inputs) call.count += count_of(input);
  if (!core_serves(call, inputs[0])) {
    return exact(call, inputs, outputs, [=](c10d::Backend& backend) mutable {
      return backend.alltoall(outputs, inputs, options);
    });
  }
  require_list(inputs, inputs[0], size_, "all_to_all");
  require_list(outputs, inputs[0], size_, "all_to_all");
  return enqueue(call, options.asyncOp, inputs, outputs, [=, this] {
    const RowMajorList in(inputs), out(outputs);
    communicator_->all_to_all(in.pointers<const void*>(), counts_of(inputs), out.pointers<void*>(),
                              counts_of(outputs), call.data_type, core_options(call));
    out.write_back();
  });
}

WorkPtr AgoqBackend::barrier(const c10d::BarrierOptions& options) {
  const Call call{Operation::kBarrier, OpType::BARRIER, "agoq:barrier", options.timeout};
  const bool on_cuda = (options.device && !options.device->is_cpu()) || !options.device_ids.empty();
  if (on_cuda && inner_.count(at::kCUDA)) {
    ++sequence_;
    communicator_->record_exact(Operation::kBarrier, ExactReason::kOperation, 0, 0, 0);
    return issue_on_device(*inner(at::kCUDA),
                           [&](c10d::Backend& backend) { return backend.barrier(options); });
  }
  return enqueue(call, options.asyncOp, {}, {},
                 [this, call] { communicator_->barrier(core_options(call)); });
}

void AgoqBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  // On the worker, since Gloo numbers its collectives in the order they are issued; without a
  // check of the call, since the missing ranks are what it is there to find.
  const Call call{Operation::kBarrier, OpType::BARRIER, "agoq:monitored_barrier", options.timeout};
  enqueue(call, true, {}, {}, [this, options, wait_all_ranks] {
    inner(at::kCPU)->monitoredBarrier(options, wait_all_ranks);
  })->wait(kNoTimeout);
}

}  // namespace agoq
