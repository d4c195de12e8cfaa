// Collectives of matrices of rows: what sequence parallelism is made of.
#include "row_ops.h"

#include <numeric>

#include "backend.h"
#include "tensor_checks.h"

namespace agoq {
namespace {

using c10d::OpType;

void require_rows(const at::Tensor& matrix, const char* name) {
  TORCH_CHECK_VALUE(matrix.layout() == at::kStrided && matrix.dim() == 2 && matrix.is_contiguous(),
                    "agoq: `", name, "` must be a contiguous matrix.");
}

void require_beside(const at::Tensor& tensor, const at::Tensor& rows, const char* name) {
  TORCH_CHECK_VALUE(tensor.device() == rows.device(), "agoq: `", name, "` is on ", tensor.device(),
                    ", but must be where the rows are, on ", rows.device(), ".");
}

void require_like(const at::Tensor& matrix, const at::Tensor& like, const char* name) {
  if (!matrix.defined()) return;
  require_rows(matrix, name);
  require_beside(matrix, like, name);
  TORCH_CHECK_VALUE(matrix.sizes() == like.sizes() && matrix.scalar_type() == like.scalar_type(),
                    "agoq: `", name, "` must have the shape and type of the rows, ", like.sizes(),
                    " of ", like.scalar_type(), ".");
}

/// The parts of a matrix of which rank r has rows[r] rows.
std::vector<std::byte*> parts_of_rows(const at::Tensor& matrix,
                                      const std::vector<std::int64_t>& rows, const char* name) {
  TORCH_CHECK_VALUE(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == matrix.size(0),
                    "agoq: `", name, "` has ", matrix.size(0),
                    " rows, which is not the sum of the ranks' ", rows, ".");
  auto* at = static_cast<std::byte*>(matrix.data_ptr());
  std::vector<std::byte*> parts;
  for (const std::int64_t of_rank : rows) {
    parts.push_back(at);
    if (of_rank > 0) at += of_rank * matrix.size(1) * matrix.element_size();
  }
  return parts;
}

template <typename T>
std::vector<T> as(const std::vector<std::byte*>& parts) {
  return {parts.begin(), parts.end()};
}

void require_share(const at::Tensor& own, const at::Tensor& whole,
                   const std::vector<std::int64_t>& rows, int rank, int size) {
  TORCH_CHECK_VALUE(rows.size() == static_cast<std::size_t>(size), "agoq: ", rows.size(),
                    " numbers of rows for ", size, " ranks.");
  TORCH_CHECK_VALUE(own.size(0) == rows[static_cast<std::size_t>(rank)] &&
                        own.size(1) == whole.size(1) && own.scalar_type() == whole.scalar_type(),
                    "agoq: this rank's rows must be ", rows[static_cast<std::size_t>(rank)], " of ",
                    whole.size(1), " elements of ", whole.scalar_type(), ".");
}

}  // namespace

RowEpilogue RowTensors::core(const at::Tensor& like) const {
  require_like(residual, like, "residual");
  require_like(normed, like, "normed");
  RowEpilogue epilogue;
  if (residual.defined()) epilogue.residual = residual.data_ptr();
  if (norm) epilogue.norm = RmsNorm{nullptr, static_cast<float>(epsilon)};
  if (weight.defined()) {
    TORCH_CHECK_VALUE(norm, "agoq: `weight` is a norm's, which needs an `epsilon`.");
    require_beside(weight, like, "weight");
    TORCH_CHECK_VALUE(weight.scalar_type() == at::kFloat && weight.is_contiguous() &&
                          weight.numel() == like.size(1),
                      "agoq: `weight` must be ", like.size(1), " contiguous float32 elements.");
    epilogue.norm->weight = weight.const_data_ptr<float>();
  }
  if (normed.defined()) epilogue.normed = normed.data_ptr();
  if (encoded.defined()) {
    epilogue.encoded = {static_cast<std::byte*>(encoded.data_ptr()), like.size(0), 0};
  }
  epilogue.rounding = rounding;
  return epilogue;
}

std::vector<at::Tensor> RowTensors::inputs(const at::Tensor& input) const {
  std::vector<at::Tensor> all{input};
  for (const auto& tensor : {residual, weight}) {
    if (tensor.defined()) all.push_back(tensor);
  }
  return all;
}

std::vector<at::Tensor> RowTensors::outputs(const at::Tensor& output) const {
  std::vector<at::Tensor> all{output};
  for (const auto& tensor : {normed, encoded}) {
    if (tensor.defined()) all.push_back(tensor);
  }
  return all;
}

bool AgoqBackend::serves_rows(c10::Device device) const {
  return device.is_cpu() || kernels_serve(device.type());
}

void AgoqBackend::require_rows_served(const at::Tensor& rows) const {
  TORCH_CHECK_VALUE(serves_rows(rows.device()), "agoq: rows on ", rows.device(),
                    " have no collectives here: this build has no kernels for them, or the group "
                    "is larger than they take (serves_rows() tells).");
}

void AgoqBackend::require_encoded(const at::Tensor& encoded, const at::Tensor& rows) const {
  require_beside(encoded, rows, "encoded");
  const RowLayout layout(options_->core.format, {rows.size(0), rows.size(1)});
  TORCH_CHECK_VALUE(encoded.scalar_type() == at::kByte && encoded.is_contiguous() &&
                        encoded.numel() == layout.total_bytes(),
                    "agoq: ", rows.size(0), " rows of ", rows.size(1), " elements have ",
                    layout.total_bytes(), " contiguous encoded bytes.");
}

WorkPtr AgoqBackend::reduce_scatter_rows(const at::Tensor& output, const at::Tensor& input,
                                         const std::vector<std::int64_t>& rows,
                                         const RowTensors& epilogue, std::optional<bool> quantize,
                                         bool async) {
  require_rows(output, "output");
  require_rows(input, "input");
  require_rows_served(input);
  require_beside(output, input, "output");
  require_share(output, input, rows, rank_, size_);
  if (epilogue.encoded.defined()) require_encoded(epilogue.encoded, output);
  const auto parts = as<const void*>(parts_of_rows(input, rows, "input"));
  const auto width = input.size(1);
  const RowEpilogue core = epilogue.core(output);
  const auto call =
      reduction(Operation::kReduceScatter, OpType::REDUCE_SCATTER, "agoq:reduce_scatter", output,
                count_of(input), c10d::ReduceOp::SUM, c10d::kUnsetTimeout);
  if (!input.is_cpu()) {
    return on_device(
        call, epilogue.inputs(input), epilogue.outputs(output),
        [=](const DeviceCommunicator& communicator) {
          return communicator.reduce_scatter_rows_workspace(rows, width, call.data_type,
                                                            call.reduce, quantize);
        },
        [=](DeviceCommunicator& communicator, DeviceCall device) {
          device.quantize = quantize;
          communicator.reduce_scatter_rows(parts, rows, width, output.data_ptr(), call.data_type,
                                           call.reduce, core, device);
        });
  }
  CallOptions of_call = core_options(call);
  of_call.quantize = quantize;
  return enqueue(call, async, epilogue.inputs(input), epilogue.outputs(output), [=, this] {
    // `epilogue` and `input` are here to live as long as their memory is used.
    communicator_->reduce_scatter_rows(parts, rows, width, output.data_ptr(), call.data_type,
                                       call.reduce, core, of_call);
    (void)epilogue;
    (void)input;
  });
}

WorkPtr AgoqBackend::all_gather_rows(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<std::int64_t>& rows,
                                     std::optional<bool> quantize, bool async) {
  require_rows(output, "output");
  require_rows(input, "input");
  require_rows_served(output);
  require_beside(input, output, "input");
  require_share(input, output, rows, rank_, size_);
  const auto parts = as<void*>(parts_of_rows(output, rows, "output"));
  const auto width = output.size(1);
  const auto call =
      gathering(OpType::ALLGATHER, "agoq:all_gather", input, count_of(output), c10d::kUnsetTimeout);
  if (!output.is_cpu()) {
    return on_device(
        call, {input}, {output},
        [=](const DeviceCommunicator& communicator) {
          return communicator.all_gather_rows_workspace(rows, width, call.data_type, quantize);
        },
        [=](DeviceCommunicator& communicator, DeviceCall device) {
          device.quantize = quantize;
          communicator.all_gather_rows(input.data_ptr(), parts, rows, width, call.data_type,
                                       device);
        });
  }
  CallOptions of_call = core_options(call);
  of_call.quantize = quantize;
  return enqueue(call, async, {input}, {output}, [=, this] {
    communicator_->all_gather_rows(input.data_ptr(), parts, rows, width, call.data_type, of_call);
  });
}

WorkPtr AgoqBackend::all_gather_encoded_rows(const at::Tensor& output, const at::Tensor& encoded,
                                             const std::vector<std::int64_t>& rows, bool async) {
  require_rows(output, "output");
  require_rows_served(output);
  const auto parts = as<void*>(parts_of_rows(output, rows, "output"));
  TORCH_CHECK_VALUE(rows.size() == static_cast<std::size_t>(size_), "agoq: ", rows.size(),
                    " numbers of rows for ", size_, " ranks.");
  require_encoded(encoded, output.narrow(0, 0, rows[static_cast<std::size_t>(rank_)]));
  const auto width = output.size(1);
  const auto* bytes = static_cast<const std::byte*>(encoded.data_ptr());
  const auto call = gathering(OpType::ALLGATHER, "agoq:all_gather", output, count_of(output),
                              c10d::kUnsetTimeout);
  if (!output.is_cpu()) {
    return on_device(
        call, {encoded}, {output},
        [=](const DeviceCommunicator& communicator) {
          return communicator.all_gather_encoded_rows_workspace(rows, width);
        },
        [=](DeviceCommunicator& communicator, const DeviceCall& device) {
          communicator.all_gather_encoded_rows(bytes, parts, rows, width, call.data_type, device);
        });
  }
  return enqueue(call, async, {encoded}, {output}, [=, this] {
    communicator_->all_gather_encoded_rows(bytes, parts, rows, width, call.data_type,
                                           core_options(call));
    (void)encoded;
    (void)output;
  });
}

void AgoqBackend::finish_rows(const at::Tensor& values, const at::Tensor& output,
                              const RowTensors& epilogue) {
  require_rows(values, "values");
  require_rows_served(values);
  require_like(output, values, "output");
  if (epilogue.encoded.defined()) require_encoded(epilogue.encoded, values);
  const RowEpilogue core = epilogue.core(values);
  const auto type = data_type_of(values);
  const RowShape shape{values.size(0), values.size(1)};
  void* const out = output.defined() ? output.data_ptr() : nullptr;
  if (values.is_cpu()) {
    communicator_->finish_rows(values.data_ptr(), type, shape, out, core);
    return;
  }
  const auto error = serve([&] {
    device_group(values.device()).finish_rows(values.data_ptr(), type, shape, out, core);
  });
  if (error) std::rethrow_exception(error);
}

}  // namespace agoq
