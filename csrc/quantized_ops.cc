// all_reduce, reduce_scatter and all_gather in every form that torch has for them. The caller's
// thread checks and queues; the run_ functions decide on the worker who serves the call.
#include <ATen/Functions.h>

#include <numeric>
#include <utility>

#include "backend.h"
#include "row_major.h"
#include "tensor_checks.h"

namespace agoq {
namespace {

using c10d::OpType;

std::int64_t total_count(const TensorList& tensors) {
  const auto counts = counts_of(tensors);
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

bool same_shapes(const TensorList& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.sizes() != tensors[0].sizes()) return false;
  }
  return true;
}

void require_pieces(const at::Tensor& whole, const at::Tensor& piece, int size,
                    const char* operation, const char* whole_name, const char* piece_name) {
  TORCH_CHECK_VALUE(whole.numel() == piece.numel() * size, "agoq: ", operation, " wants an ",
                    whole_name, " of ", size, " (the ranks) times the ", piece.numel(),
                    " elements of the ", piece_name, ", but it has ", whole.numel(), ".");
  TORCH_CHECK_TYPE(whole.scalar_type() == piece.scalar_type(), "agoq: ", operation,
                   " got an input and an output of different types, ", whole.scalar_type(), " and ",
                   piece.scalar_type(), "; they must be equal.");
}

/// Gloo knows no PREMUL_SUM: its callers multiply first and sum then.
template <typename Options>
Options as_sum(Options options) {
  if (options.reduceOp.op_ == c10d::ReduceOp::PREMUL_SUM) {
    options.reduceOp = c10d::ReduceOp::SUM;
  }
  return options;
}

bool is_premultiplied(const Call& call) { return call.reduce == agoq::ReduceOp::kPremulSum; }

bool on_cpu(const at::Tensor& tensor) { return tensor.is_cpu(); }

}  // namespace

Call AgoqBackend::reduction(Operation operation, OpType type, const char* title,
                            const at::Tensor& tensor, std::int64_t count, const c10d::ReduceOp& op,
                            std::chrono::milliseconds timeout) const {
  Call call{operation, type, title, timeout};
  require_reducible(tensor, to_string(operation));
  call.data_type = data_type_of(tensor);
  call.reduce = reduce_op_of(op);
  call.count = count;
  call.reason = why_exact(operation, call.data_type, call.reduce, count, size_, options_->core);
  if (on_cpu(tensor) || has_host_factor(op)) {
    call.factor = factor_of(op);
  } else {
    // To read it would make the host wait for the device.
    call.reason = ExactReason::kReduceOp;
  }
  return call;
}

Call AgoqBackend::gathering(OpType type, const char* title, const at::Tensor& tensor,
                            std::int64_t count, std::chrono::milliseconds timeout) const {
  Call call{Operation::kAllGather, type, title, timeout};
  call.data_type = data_type_of(tensor);
  call.count = count;
  call.reason = why_exact(Operation::kAllGather, call.data_type, agoq::ReduceOp::kNone, count,
                          size_, options_->core);
  return call;
}

void AgoqBackend::run_all_reduce(const Call& call, const at::Tensor& tensor,
                                 const c10d::AllreduceOptions& options) {
  if (core_serves(call, tensor)) {
    const RowMajor rows(tensor);
    communicator_->all_reduce(rows.data(), rows.data(), call.count, call.data_type, call.reduce,
                              core_options(call));
    rows.write_back();
    return;
  }
  run_exact(call, [&](c10d::Backend& backend) {
    if (is_premultiplied(call)) tensor.mul_(call.factor);
    TensorList tensors{tensor};
    return backend.allreduce(tensors, as_sum(options));
  });
}

void AgoqBackend::run_reduce_scatter(const Call& call, const at::Tensor& output,
                                     const TensorList& inputs,
                                     const c10d::ReduceScatterOptions& options) {
  if (core_serves(call, output) || !same_shapes(inputs)) {
    const RowMajor rows(output);
    const RowMajorList chunks(inputs);
    communicator_->reduce_scatter(chunks.pointers<const void*>(), counts_of(inputs), rows.data(),
                                  call.data_type, call.reduce, core_options(call));
    rows.write_back();
    return;
  }
  run_exact(call, [&](c10d::Backend& backend) {
    TensorList outputs{output};
    std::vector<TensorList> lists{inputs};
    if (is_premultiplied(call)) {
      for (auto& input : lists[0]) input = input * call.factor;
    }
    return backend.reduce_scatter(outputs, lists, as_sum(options));
  });
}

void AgoqBackend::run_all_gather(const Call& call, const TensorList& outputs,
                                 const at::Tensor& input, const c10d::AllgatherOptions& options) {
  if (core_serves(call, input) || !same_shapes(outputs)) {
    const RowMajor rows(input);
    const RowMajorList chunks(outputs);
    communicator_->all_gather(rows.data(), chunks.pointers<void*>(), counts_of(outputs),
                              call.data_type, core_options(call));
    chunks.write_back();
    return;
  }
  run_exact(call, [&](c10d::Backend& backend) {
    std::vector<TensorList> lists{outputs};
    TensorList inputs{input};
    return backend.allgather(lists, inputs, options);
  });
}

WorkPtr AgoqBackend::allreduce(TensorList& tensors, const c10d::AllreduceOptions& options) {
  auto& tensor = only(tensors, "all_reduce");
  if (tensor.layout() != at::kStrided) return allreduce_sparse(tensors, options);
  const auto call = reduction(Operation::kAllReduce, OpType::ALLREDUCE, "agoq:all_reduce", tensor,
                              count_of(tensor), options.reduceOp, options.timeout);
  if (device_serves(call, tensor)) return device_all_reduce(call, tensors);
  if (!on_cpu(tensor)) {
    return exact(call, tensors, tensors, [=](c10d::Backend& backend) mutable {
      return backend.allreduce(tensors, options);
    });
  }
  return enqueue(call, options.asyncOp, tensors, tensors,
                 [=, this] { run_all_reduce(call, tensor, options); });
}

WorkPtr AgoqBackend::allreduce_coalesced(TensorList& tensors,
                                         const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "agoq: all_reduce_coalesced got no tensor.");
  const auto call =
      reduction(Operation::kAllReduce, OpType::ALLREDUCE_COALESCED, "agoq:all_reduce_coalesced",
                tensors[0], total_count(tensors), options.reduceOp, options.timeout);
  if (device_serves(call, tensors[0])) return device_all_reduce(call, tensors);
  if (!on_cpu(tensors[0])) {
    return exact(call, tensors, tensors, [=](c10d::Backend& backend) mutable {
      return backend.allreduce_coalesced(tensors, options);
    });
  }
  for (const auto& tensor : tensors) {
    TORCH_CHECK_TYPE(
        tensor.scalar_type() == tensors[0].scalar_type() && tensor.layout() == at::kStrided,
        "agoq: all_reduce_coalesced takes dense tensors of one type; call all_reduce "
        "for each of the others.");
  }
  return enqueue(call, options.asyncOp, tensors, tensors, [=, this] {
    // One buffer, one call: many small tensors together are worth encoding, and cost one latency.
    TensorList flat;
    for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}));
    const auto buffer = at::cat(flat);
    run_all_reduce(call, buffer, options);
    std::int64_t start = 0;
    for (const auto& tensor : tensors) {
      tensor.copy_(buffer.narrow(0, start, tensor.numel()).view(tensor.sizes()));
      start += tensor.numel();
    }
  });
}

WorkPtr AgoqBackend::reduce_scatter(TensorList& outputs, std::vector<TensorList>& inputs,
                                    const c10d::ReduceScatterOptions& options) {
  auto& output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "agoq: reduce_scatter takes one list of inputs, got ",
                    inputs.size(), ".");
  const auto& list = inputs[0];
  require_list(list, output, size_, "reduce_scatter");
  TORCH_CHECK_VALUE(list[static_cast<std::size_t>(rank_)].numel() == output.numel(),
                    "agoq: reduce_scatter got an output of ", output.numel(),
                    " elements, but input ", rank_, " (its rank) has ",
                    list[static_cast<std::size_t>(rank_)].numel(), "; they must be equal.");
  const auto call =
      reduction(Operation::kReduceScatter, OpType::REDUCE_SCATTER, "agoq:reduce_scatter", output,
                total_count(list), options.reduceOp, options.timeout);
  if (device_serves(call, output)) return device_reduce_scatter({call}, outputs, inputs);
  if (!on_cpu(output)) {
    return exact(call, list, outputs, [=](c10d::Backend& backend) mutable {
      return backend.reduce_scatter(outputs, inputs, options);
    });
  }
  return enqueue(call, options.asyncOp, list, outputs,
                 [=, this] { run_reduce_scatter(call, output, list, options); });
}

WorkPtr AgoqBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) {
  require_pieces(input, output, size_, "reduce_scatter_tensor", "input", "output");
  const auto call =
      reduction(Operation::kReduceScatter, OpType::_REDUCE_SCATTER_BASE, "agoq:reduce_scatter",
                output, count_of(input), options.reduceOp, options.timeout);
  if (device_serves(call, output)) return device_reduce_scatter({call}, {output}, {{input}});
  if (!on_cpu(output)) {
    return exact(call, {input}, {output}, [=](c10d::Backend& backend) mutable {
      return backend._reduce_scatter_base(output, input, options);
    });
  }
  return enqueue(call, options.asyncOp, {input}, {output}, [=, this] {
    run_reduce_scatter(call, output, parts_of(input.contiguous(), size_), options);
  });
}

WorkPtr AgoqBackend::reduce_scatter_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                     const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(),
                    "agoq: reduce_scatter_tensor_coalesced takes as many inputs as outputs, got ",
                    inputs.size(), " and ", outputs.size(), ".");
  std::vector<Call> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_pieces(inputs[i], outputs[i], size_, "reduce_scatter_tensor", "input", "output");
    calls.push_back(reduction(Operation::kReduceScatter, OpType::_REDUCE_SCATTER_BASE,
                              "agoq:reduce_scatter", outputs[i], count_of(inputs[i]),
                              options.reduceOp, options.timeout));
  }
  if (!on_cpu(outputs[0])) {
    if (const auto served = served_on_device(calls, outputs[0])) {
      if (*served) return device_reduce_scatter(calls, outputs, in_lists(inputs));
    } else {
      return one_by_one(calls.size(), outputs, [&](std::size_t i) {
        return _reduce_scatter_base(outputs[i], inputs[i], options);
      });
    }
    return exact(calls[0], inputs, outputs, [=](c10d::Backend& backend) mutable {
      return backend.reduce_scatter_tensor_coalesced(outputs, inputs, options);
    });
  }
  return enqueue(calls[0], options.asyncOp, inputs, outputs, [=, this] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      run_reduce_scatter(calls[i], outputs[i], parts_of(inputs[i].contiguous(), size_), options);
    }
  });
}

WorkPtr AgoqBackend::allgather(std::vector<TensorList>& outputs, TensorList& inputs,
                               const c10d::AllgatherOptions& options) {
  const auto& input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "agoq: all_gather takes one list of outputs, got ",
                    outputs.size(), ".");
  const auto& list = outputs[0];
  require_list(list, input, size_, "all_gather");
  TORCH_CHECK_VALUE(list[static_cast<std::size_t>(rank_)].numel() == input.numel(),
                    "agoq: all_gather got an input of ", input.numel(), " elements, but output ",
                    rank_, " (its rank) has ", list[static_cast<std::size_t>(rank_)].numel(),
                    "; they must be equal.");
  const auto call =
      gathering(OpType::ALLGATHER, "agoq:all_gather", input, total_count(list), options.timeout);
  if (device_serves(call, input)) return device_all_gather({call}, outputs, inputs);
  if (!on_cpu(input)) {
    return exact(call, inputs, list, [=](c10d::Backend& backend) mutable {
      return backend.allgather(outputs, inputs, options);
    });
  }
  return enqueue(call, options.asyncOp, inputs, list,
                 [=, this] { run_all_gather(call, list, input, options); });
}

WorkPtr AgoqBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                     const c10d::AllgatherOptions& options) {
  TensorList outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPtr AgoqBackend::allgather_coalesced(std::vector<TensorList>& outputs, TensorList& inputs,
                                         const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "agoq: all_gather_coalesced got no tensor.");
  TORCH_CHECK_VALUE(outputs.size() == static_cast<std::size_t>(size_),
                    "agoq: all_gather_coalesced takes a list of outputs for each of the ", size_,
                    " ranks, got ", outputs.size(), ".");
  std::vector<TensorList> lists(inputs.size());
  std::vector<Call> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const auto& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "agoq: all_gather_coalesced got ",
                        inputs.size(), " inputs, but a list of ", of_rank.size(), " outputs.");
      lists[i].push_back(of_rank[i]);
    }
    require_list(lists[i], inputs[i], size_, "all_gather_coalesced");
    calls.push_back(gathering(OpType::ALLGATHER_COALESCED, "agoq:all_gather", inputs[i],
                              total_count(lists[i]), options.timeout));
  }
  if (!on_cpu(inputs[0])) {
    if (const auto served = served_on_device(calls, inputs[0])) {
      if (*served) return device_all_gather(calls, lists, inputs);
    } else {
      return one_by_one(calls.size(), flatten(outputs), [&](std::size_t i) {
        std::vector<TensorList> list{lists[i]};
        TensorList input{inputs[i]};
        return allgather(list, input, options);
      });
    }
    return exact(calls[0], inputs, flatten(outputs), [=](c10d::Backend& backend) mutable {
      return backend.allgather_coalesced(outputs, inputs, options);
    });
  }
  return enqueue(calls[0], options.asyncOp, inputs, flatten(outputs), [=, this] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      run_all_gather(calls[i], lists[i], inputs[i], options);
    }
  });
}

WorkPtr AgoqBackend::allgather_into_tensor_coalesced(TensorList& outputs, TensorList& inputs,
                                                     const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(),
                    "agoq: all_gather_into_tensor takes as many inputs as outputs, got ",
                    inputs.size(), " and ", outputs.size(), ".");
  std::vector<Call> calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require_pieces(outputs[i], inputs[i], size_, "all_gather_into_tensor", "output", "input");
    calls.push_back(gathering(OpType::_ALLGATHER_BASE, "agoq:all_gather", inputs[i],
                              count_of(outputs[i]), options.timeout));
  }
  if (!on_cpu(inputs[0])) {
    if (const auto served = served_on_device(calls, inputs[0])) {
      if (*served) return device_all_gather(calls, in_lists(outputs), inputs);
    } else {
      return one_by_one(calls.size(), outputs, [&](std::size_t i) {
        return _allgather_base(outputs[i], inputs[i], options);
      });
    }
    return exact(calls[0], inputs, outputs, [=](c10d::Backend& backend) mutable {
      return outputs.size() == 1
                 ? backend._allgather_base(outputs[0], inputs[0], options)
                 : backend.allgather_into_tensor_coalesced(outputs, inputs, options);
    });
  }
  return enqueue(calls[0], options.asyncOp, inputs, outputs, [=, this] {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const RowMajor rows(outputs[i]);
      run_all_gather(calls[i], parts_of(rows.tensor(), size_), inputs[i], options);
      rows.write_back();
    }
  });
}

}  // namespace agoq
