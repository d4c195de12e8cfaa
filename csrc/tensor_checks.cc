#include "tensor_checks.h"

namespace agoq {

DataType data_type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DataType::kFloat32;
    case at::kBFloat16:
      return DataType::kBfloat16;
    case at::kHalf:
      return DataType::kFloat16;
    case at::kDouble:
      return DataType::kFloat64;
    case at::kChar:
      return DataType::kInt8;
    case at::kByte:
      return DataType::kUint8;
    case at::kShort:
      return DataType::kInt16;
    case at::kInt:
      return DataType::kInt32;
    case at::kLong:
      return DataType::kInt64;
    case at::kBool:
      return DataType::kBool;
    case at::kComplexFloat:
      return DataType::kComplex64;
    case at::kComplexDouble:
      return DataType::kComplex128;
    default:
      return DataType::kOther;
  }
}

std::int64_t count_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided) return 0;
  return data_type_of(tensor) == DataType::kOther ? static_cast<std::int64_t>(tensor.nbytes())
                                                  : tensor.numel();
}

ReduceOp reduce_op_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kPremulSum;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    default:
      TORCH_CHECK_VALUE(false, "agoq: this reduce op is not one of SUM, AVG, PREMUL_SUM, PRODUCT, ",
                        "MIN, MAX, BAND, BOR and BXOR.");
  }
}

namespace {

/// By the older of its two names, which every torch since 2.11 knows.
const c10d::NCCLPreMulSumSupplement* supplement_of(const c10d::ReduceOp& op) {
  return static_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
}

}  // namespace

bool has_host_factor(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM || !supplement_of(op)) return true;
  const auto& factor = supplement_of(op)->tensor_factor;
  return !factor.defined() || factor.is_cpu();
}

double factor_of(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return 1;
  const auto* supplement = supplement_of(op);
  TORCH_CHECK_VALUE(supplement, "agoq: PREMUL_SUM has no factor; make it with PREMUL_SUM(factor).");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>()
                                             : supplement->double_factor;
}

void require_reducible(const at::Tensor& tensor, std::string_view operation) {
  TORCH_CHECK_TYPE(!tensor.is_cpu() || data_type_of(tensor) != DataType::kOther,
                   "agoq: ", operation, " cannot reduce ", tensor.scalar_type(),
                   "; convert the tensor to bfloat16 or float32 first.");
}

void require_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size,
                  std::string_view operation) {
  TORCH_CHECK_VALUE(list.size() == static_cast<std::size_t>(size), "agoq: ", operation,
                    " takes a list of ", size, " tensors, one for each rank, but got ", list.size(),
                    ".");
  for (const auto& tensor : list) {
    TORCH_CHECK_TYPE(tensor.scalar_type() == other.scalar_type(), "agoq: ", operation,
                     " got tensors of different types, ", tensor.scalar_type(), " and ",
                     other.scalar_type(), "; they must be equal.");
  }
}

void require_equal_list(const std::vector<at::Tensor>& list, const at::Tensor& other, int size,
                        std::string_view operation) {
  require_list(list, other, size, operation);
  for (const auto& tensor : list) {
    TORCH_CHECK_VALUE(tensor.numel() == other.numel(), "agoq: ", operation,
                      " got tensors of different sizes, ", tensor.numel(), " and ", other.numel(),
                      " elements; they must be equal.");
  }
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "agoq: ", operation, " takes one tensor a rank, got ",
                    tensors.size(), ".");
  return tensors[0];
}

std::vector<std::int64_t> counts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<std::int64_t> counts;
  for (const auto& tensor : tensors) counts.push_back(count_of(tensor));
  return counts;
}

std::vector<at::Tensor> parts_of(const at::Tensor& whole, int size) {
  const auto flat = whole.view({-1});
  if (flat.numel() == 0) return std::vector<at::Tensor>(static_cast<std::size_t>(size), flat);
  return flat.chunk(size);
}

std::vector<std::vector<at::Tensor>> in_lists(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const auto& tensor : tensors) lists.push_back({tensor});
  return lists;
}

std::vector<at::Tensor> flatten(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace agoq
