// Collectives of matrices of rows, for CPU tensors: what sequence parallelism is made of.
#include "row_ops.h"

#include <numeric>

#include "backend.h"
#include "tensor_checks.h"

namespace agoq {
namespace {

using c10d::OpType;

void require_rows(const at::Tensor& matrix, const char* name) {
  TORCH_CHECK_VALUE(matrix.is_cpu() && matrix.layout() == at::kStrided && matrix.dim() == 2 &&
                        matrix.is_contiguous(),
                    "agoq: `", name, "` must be a contiguous matrix in CPU memory.");
}

void require_like(const at::Tensor& matrix, const at::Tensor& like, const char* name) {
  if (!matrix.defined()) return;
  require_rows(matrix, name);
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
    TORCH_CHECK_VALUE(weight.is_cpu() && weight.scalar_type() == at::kFloat &&
                          weight.is_contiguous() && weight.numel() == like.size(1),
                      "agoq: `weight` must be ", like.size(1),
                      " contiguous float32 elements in CPU memory.");
    epilogue.norm->weight = weight.const_data_ptr<float>();
  }
  if (normed.defined()) epilogue.normed = normed.data_ptr();
  if (encoded.defined()) {
    TORCH_CHECK_VALUE(
        encoded.is_cpu() && encoded.scalar_type() == at::kByte && encoded.is_contiguous(),
        "agoq: `encoded` must be contiguous bytes in CPU memory.");
    epilogue.encoded = {static_cast<std::byte*>(encoded.data_ptr()), like.size(0), 0};
  }
  epilogue.rounding = rounding;
  return epilogue;
}

void AgoqBackend::require_encoded(const at::Tensor& encoded, const at::Tensor& rows) const {
  const RowLayout layout(options_->core.format, {rows.size(0), rows.size(1)});
  TORCH_CHECK_VALUE(encoded.is_cpu() && encoded.scalar_type() == at::kByte &&
                        encoded.is_contiguous() && encoded.numel() == layout.total_bytes(),
                    "agoq: ", rows.size(0), " rows of ", rows.size(1), " elements have ",
                    layout.total_bytes(), " contiguous encoded bytes in CPU memory.");
}

WorkPtr AgoqBackend::reduce_scatter_rows(const at::Tensor& output, const at::Tensor& input,
                                         const std::vector<std::int64_t>& rows,
                                         const RowTensors& epilogue, std::optional<bool> quantize) {
  require_rows(output, "output");
  require_rows(input, "input");
  require_share(output, input, rows, rank_, size_);
  if (epilogue.encoded.defined()) require_encoded(epilogue.encoded, output);
  const auto parts = as<const void*>(parts_of_rows(input, rows, "input"));
  const RowEpilogue core = epilogue.core(output);
  auto call = reduction(Operation::kReduceScatter, OpType::REDUCE_SCATTER, "agoq:reduce_scatter",
                        output, count_of(input), c10d::ReduceOp::SUM, c10d::kUnsetTimeout);
  CallOptions of_call = core_options(call);
  of_call.quantize = quantize;
  return enqueue(call, true, {input}, {output}, [=, this] {
    // `epilogue` and `input` are here to live as long as their memory is used.
    communicator_->reduce_scatter_rows(parts, rows, input.size(1), output.data_ptr(),
                                       call.data_type, call.reduce, core, of_call);
    (void)epilogue;
  });
}

WorkPtr AgoqBackend::all_gather_rows(const at::Tensor& output, const at::Tensor& input,
                                     const std::vector<std::int64_t>& rows,
                                     std::optional<bool> quantize) {
  require_rows(output, "output");
  require_rows(input, "input");
  require_share(input, output, rows, rank_, size_);
  const auto parts = as<void*>(parts_of_rows(output, rows, "output"));
  const auto call =
      gathering(OpType::ALLGATHER, "agoq:all_gather", input, count_of(output), c10d::kUnsetTimeout);
  CallOptions of_call = core_options(call);
  of_call.quantize = quantize;
  return enqueue(call, true, {input}, {output}, [=, this] {
    communicator_->all_gather_rows(input.data_ptr(), parts, rows, output.size(1), call.data_type,
                                   of_call);
  });
}

WorkPtr AgoqBackend::all_gather_encoded_rows(const at::Tensor& output, const at::Tensor& encoded,
                                             const std::vector<std::int64_t>& rows) {
  require_rows(output, "output");
  const auto parts = as<void*>(parts_of_rows(output, rows, "output"));
  TORCH_CHECK_VALUE(rows.size() == static_cast<std::size_t>(size_), "agoq: ", rows.size(),
                    " numbers of rows for ", size_, " ranks.");
  require_encoded(encoded, output.narrow(0, 0, rows[static_cast<std::size_t>(rank_)]));
  const auto call = gathering(OpType::ALLGATHER, "agoq:all_gather", output, count_of(output),
                              c10d::kUnsetTimeout);
  return enqueue(call, true, {encoded}, {output}, [=, this] {
    communicator_->all_gather_encoded_rows(static_cast<const std::byte*>(encoded.data_ptr()), parts,
                                           rows, output.size(1), call.data_type,
                                           core_options(call));
  });
}

void AgoqBackend::finish_rows(const at::Tensor& values, const at::Tensor& output,
                              const RowTensors& epilogue) const {
  require_rows(values, "values");
  require_like(output, values, "output");
  if (epilogue.encoded.defined()) require_encoded(epilogue.encoded, values);
  communicator_->finish_rows(values.data_ptr(), data_type_of(values),
                             {values.size(0), values.size(1)},
                             output.defined() ? output.data_ptr() : nullptr, epilogue.core(values));
}

}  // namespace agoq
